"""What `enable_wrap` blocks hand to the `wrap` calls within them.

Source: `torch.distributed.fsdp.wrap`: `wrap(m)` calls whatever `enable_wrap(wrapper_cls=...)` was given.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from codemods.analysis.holding import WrapCall
from codemods.analysis.index import Index
from codemods.analysis.meanings import Meanings
from codemods.analysis.module import Module

ENABLE = "torch.distributed.fsdp.wrap.enable_wrap"
WRAP = "torch.distributed.fsdp.wrap.wrap"


def wrapper_of(call: ast.Call) -> ast.expr | None:
    """What an `enable_wrap(...)` is given to wrap with."""
    return next((k.value for k in call.keywords if k.arg == "wrapper_cls"), None)


def calls_function(index: Index, module: Module, call: ast.Call) -> bool:
    """Whether an `enable_wrap(...)` is given a function of the project, such as the helper module's."""
    wrapper = wrapper_of(call)
    symbol = index.resolve(module, wrapper) if wrapper is not None else None
    return symbol is not None and isinstance(symbol.node, ast.FunctionDef)


def without_other_wraps(
    index: Index, meanings: Meanings, modules: Iterable[Module], wraps: list[WrapCall]
) -> list[WrapCall]:
    """The wrap calls without every `wrap(m)` that calls a function of the project, whatever its block."""
    if not any(site.kind == "wrap" for site in wraps):
        return wraps
    enabling = [
        (module, call)
        for module in modules
        for call, symbol in meanings.calls(module)
        if symbol.name == ENABLE
    ]
    if not enabling or not all(calls_function(index, *given) for given in enabling):
        return wraps
    return [site for site in wraps if site.kind != "wrap"]
