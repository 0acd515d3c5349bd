"""FSDP1's class in a type annotation."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from codemods.rule import (
    FSDP,
    Edit,
    Finding,
    Module,
    Project,
    Safety,
    Span,
    code,
    finding,
    is_annotation,
    replace,
    rule,
)

_FSDP_MODULE = "{torch.distributed.fsdp.FSDPModule}"


@rule("annotation", {"FM502": "FSDP1's class in a type annotation"})
def annotation(project: Project) -> Iterator[Finding]:
    """`FSDP` in an annotation becomes `FSDPModule`.

        def save(model: FSDP, path: str) -> None: ...
        def save(model: FSDPModule, path: str) -> None: ...

    Unions and string annotations are rewritten in place. `FSDPModule` has the sharding methods only; a type
    checker that is to know `model.parameters()` too wants a class that inherits from both it and
    `nn.Module`."""
    for use in project.uses(FSDP):
        if is_annotation(use.module, use.node):
            yield _finding(use.module, use.node, replace(use.module, use.node, code(None, _FSDP_MODULE)))
    for module in list(project.modules.values()):
        for node in module.nodes(ast.Constant):
            assert isinstance(node, ast.Constant)
            if isinstance(node.value, str) and is_annotation(module, node):
                edit = _in_string(project, module, node, node.value)
                if edit is not None:
                    yield _finding(module, node, edit)


def _finding(module: Module, node: ast.AST, edit: Edit) -> Finding:
    message = "a sharded model is an `FSDPModule`"
    return finding(module, node, "FM502", message, safety=Safety.SAFE, edits=[edit])


def _in_string(project: Project, module: Module, node: ast.Constant, text: str) -> Edit | None:
    """The edit of a string annotation that names FSDP1's class."""
    source = module.code(node)
    for word in set(re.findall(r"[A-Za-z_][\w.]*", text)):
        symbol = _meaning(project, module, word)
        if symbol == FSDP:
            span = module.span(node)
            found = re.search(rf"(?<![\w.]){re.escape(word)}(?![\w.])", source)
            if found is not None:
                at = Span(span.start + found.start(), span.start + found.end())
                return Edit(module.path, at, code(None, _FSDP_MODULE))
    return None


def _meaning(project: Project, module: Module, word: str) -> str | None:
    try:
        parsed = ast.parse(word, mode="eval").body
    except SyntaxError:
        return None
    head = word.split(".")[0]
    symbol = project.index.lookup(module, module.scope, head)
    for attribute in word.split(".")[1:]:
        symbol = project.index.member(symbol, attribute) if symbol is not None else None
    return symbol.name if symbol is not None and isinstance(parsed, ast.Name | ast.Attribute) else None
