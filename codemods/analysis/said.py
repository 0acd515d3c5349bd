"""Where the code says outright that an expression holds a sharded model, whatever was found to get there."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from codemods.analysis.flow import bound_between
from codemods.analysis.holding import WrapCall
from codemods.analysis.module import Module

if TYPE_CHECKING:
    from codemods.analysis.link import Links

_SHARDING = ("fully_shard", "shard_model")
"""What an earlier run has left of a wrap."""


def is_said(links: Links, module: Module, node: ast.expr) -> bool:
    """Whether one of FSDP1's static methods or a test says it."""
    return is_evident(links, module, node) or links.evidence.is_tested(module, node)


def is_evident(links: Links, module: Module, node: ast.expr) -> bool:
    """Whether a static method of FSDP1 is called on the same name in the same function, and nothing wraps
    or shards the model in between."""
    subjects = links.evidence.evident(module, node)
    return any(not _is_wrapped_between(links, module, node, subject) for subject in subjects)


def _is_wrapped_between(links: Links, module: Module, node: ast.expr, subject: ast.expr) -> bool:
    given = [b.value for b in bound_between(module, node, subject) if b.value is not None]
    if any(isinstance(held, WrapCall) for value in given for held in links.held(module, value)):
        return True
    name = ast.unparse(subject)
    return any(
        call in given or (node.lineno < call.lineno < subject.lineno and ast.unparse(call.args[0]) == name)
        for callee in _SHARDING
        for call in module.called(callee)
        if call.args
    )
