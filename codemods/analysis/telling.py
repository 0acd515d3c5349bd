"""Whether a file that says FSDP can use FSDP1, or only speaks of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from codemods.analysis.index import Index
from codemods.analysis.module import Module

_TELLS = re.compile(rb"(?<![a-z0-9_])(?i:fsdp)|use_fsdp|F(?:SDP|sdp)|(?i:fullysharded|fully_shard)")
_READ_COMMENT = re.compile(rb"#[^\r\n]*(?:\btype:[^\r\n]*fsdp|fsdp-migrate)", re.IGNORECASE)
"""Types, and what an earlier run or the user left for this one."""
_NAMES: dict[type[ast.AST], tuple[str, ...]] = {
    ast.arg: ("arg",),
    ast.keyword: ("arg",),
    ast.alias: ("name", "asname"),
    ast.FunctionDef: ("name",),
    ast.AsyncFunctionDef: ("name",),
    ast.ClassDef: ("name",),
}


def tells_of_fsdp(text: bytes) -> bool:
    """Whether FSDP stands in some text otherwise than inside of longer names, which the project gave:
    `_fsdp_plan`, `is_fsdp_managed_module`."""
    return _TELLS.search(text) is not None


def may_use_fsdp(module: Module, index: Index) -> bool:
    """Whether it stands so in the code of a file: comments and docstrings do not count, nor do modules of the
    project that are imported from; what names these bring is followed."""
    if _READ_COMMENT.search(module.source.data):
        return True
    return tells_of_fsdp("\n".join(_told(module, index)).encode(errors="replace"))


def _told(module: Module, index: Index) -> Iterator[str]:
    """Names, strings and modules that code says, one by one."""
    yield from module.attributes_and_names()
    for kind, fields in _NAMES.items():
        for node in module.nodes(kind):
            yield from (str(getattr(node, field)) for field in fields)
    for node in module.nodes(ast.ImportFrom):
        assert isinstance(node, ast.ImportFrom)
        if not node.level and node.module and index.locate(node.module, module.path) is None:
            yield node.module
    for node in module.nodes(ast.Constant):
        assert isinstance(node, ast.Constant)
        if isinstance(node.value, str | bytes) and not isinstance(module.parent(node), ast.Expr):
            yield str(node.value)
