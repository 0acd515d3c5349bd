"""`try: from torch.distributed.fsdp import fully_shard` with a way out to FSDP1 or to a flag.

Under a torch that has FSDP2 (the rewrite's target) the `except` branch is never taken. The gate goes when
what it offered, FSDP1's names or a flag, is no longer used.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from codemods.analysis.module import Module
from codemods.dual_stack.spans import only
from codemods.dual_stack.spot import Refused, Spot
from codemods.dual_stack.unused import is_imported_elsewhere
from codemods.model import Span
from codemods.project import Project
from codemods.torch_names import FSDP2_NAMES, canonical, is_fsdp1, is_fsdp_namespace

_FAILURES = {"ImportError", "ModuleNotFoundError", "AttributeError", "Exception"}


def gate_spots(project: Project, module: Module) -> Iterator[Spot]:
    """Gates that can go."""
    for node in module.nodes(ast.Try):
        assert isinstance(node, ast.Try)
        if not _imports_fsdp2(node.body) or not _is_gate(node):
            continue
        offered = _bound(node.handlers[0].body)
        flags = {name for name in offered if _is_flag(node, name)}
        fallback = {name for name, is_old in _imported(node.handlers[0].body) if is_old}
        if not fallback and not flags:
            continue
        if any(_is_used(module, name) for name in flags | (fallback - _bound(node.body))):
            continue
        if any(is_imported_elsewhere(project, module, name) for name in flags | fallback):
            continue
        kept = [s for s in node.body if not _assigns(s, flags)]
        edit = only(module, node, kept, node) if kept and kept == node.body[: len(kept)] else None
        if edit is not None and _follows_imports(module, node):
            start = module.text[: edit.span.start].rstrip()
            edit = replace(edit, span=Span(module.line_end(len(start)), edit.span.end))
        yield Spot(module, node, [edit] if edit is not None else Refused("its branches share lines"))


def _imports_fsdp2(body: list[ast.stmt]) -> bool:
    return any(
        isinstance(s, ast.ImportFrom)
        and (s.module or "").startswith("torch.distributed")
        and any(alias.name in FSDP2_NAMES for alias in s.names)
        for s in body
    )


def _is_gate(node: ast.Try) -> bool:
    """One handler for a failed import, and nothing in it but imports and plain values."""
    if len(node.handlers) != 1 or node.finalbody or node.orelse:
        return False
    caught = node.handlers[0].type
    names = caught.elts if isinstance(caught, ast.Tuple) else [caught] if caught is not None else []
    if not all(isinstance(name, ast.Name) and name.id in _FAILURES for name in names):
        return False
    return all(
        isinstance(s, ast.ImportFrom | ast.Import | ast.Pass)
        or (isinstance(s, ast.Assign) and _is_plain(s.value))
        for s in (*node.body, *node.handlers[0].body)
    )


def _is_plain(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) or (
        isinstance(value, ast.Tuple) and all(isinstance(e, ast.Constant) for e in value.elts)
    )


def _bound(body: list[ast.stmt]) -> set[str]:
    names = {name for name, _ in _imported(body)}
    for statement in body:
        for target in statement.targets if isinstance(statement, ast.Assign) else ():
            names |= {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}
    return names


def _imported(body: list[ast.stmt]) -> Iterator[tuple[str, bool]]:
    """Names that imports bind, and whether they are FSDP1's."""
    for statement in body:
        for alias in statement.names if isinstance(statement, ast.ImportFrom) else ():
            full = canonical(f"{statement.module or ''}.{alias.name}")  # type: ignore[attr-defined]
            yield alias.asname or alias.name, is_fsdp_namespace(full) and is_fsdp1(full)


def _follows_imports(module: Module, node: ast.Try) -> bool:
    """Whether the statement above is an import, of whose group the gate's imports are then."""
    block = module.block(node)
    at = block.index(node)
    above = block[at - 1] if at else None
    return isinstance(above, ast.Import | ast.ImportFrom) and not _comment_between(module, above, node)


def _comment_between(module: Module, above: ast.stmt, node: ast.stmt) -> bool:
    return bool(module.text[module.line_end(module.span(above).end) : module.span(node).start].strip())


def _is_flag(node: ast.Try, name: str) -> bool:
    """`HAS_FSDP2 = True`, and `False` where the import fails."""
    values = []
    for body in (node.body, node.handlers[0].body):
        for statement in body:
            if _assigns(statement, {name}):
                assert isinstance(statement, ast.Assign)
                values.append(getattr(statement.value, "value", None))
    return values in ([True, False], [False, True])


def _assigns(statement: ast.stmt, names: set[str]) -> bool:
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return len(targets) == 1 and isinstance(targets[0], ast.Name) and targets[0].id in names


def _is_used(module: Module, name: str) -> bool:
    return any(
        isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)
        for n in module.nodes(ast.Name)
    )
