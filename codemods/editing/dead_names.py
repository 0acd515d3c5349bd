"""Local variables whose last use went with a rewrite: their assignments go too."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.analysis.module import Module
from codemods.editing.code import stands_alone
from codemods.editing.drafts import draft_of

_PURE = (
    ast.Name,
    ast.Attribute,
    ast.Constant,
    ast.BoolOp,
    ast.UnaryOp,
    ast.Compare,
    ast.IfExp,
    ast.boolop,
    ast.unaryop,
    ast.cmpop,
    ast.expr_context,
)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_BY_NAME = ("locals", "eval", "exec", "vars")
"""Functions that can read any variable around them."""


def without_dead_names(before: Module, after: Module) -> Module:
    """Remove assignments in functions that nothing in these reads any more, where evaluating is harmless.

    What nothing read before either is the author's.
    """
    candidates = [(name, a) for name, a in _assignments(after) if after.function(a) and _is_pure(a.value)]
    read_before = _reads(before, {name for name, _ in candidates})
    text = after.text
    spans = []
    for name, assignment in candidates:
        function = after.function(assignment)
        if function is None or (_path(after, function), name) not in read_before:
            continue
        if _is_read(after, function, name):
            continue
        if stands_alone(after, assignment) and _has_neighbours(after, assignment):
            span = after.span(assignment)
            end = after.line_end(span.end)
            if not text[span.end : end].strip():
                spans.append((after.line_start(span.start), end))
    for start, end in sorted(spans, reverse=True):
        text = text[:start] + text[end:]
    return draft_of(after, text)


def _assignments(module: Module) -> Iterator[tuple[str, ast.Assign]]:
    for node in module.nodes(ast.Assign):
        assert isinstance(node, ast.Assign)
        target = node.targets[0]
        if len(node.targets) == 1 and isinstance(target, ast.Name):
            yield target.id, node


def _is_pure(value: ast.expr) -> bool:
    """Whether evaluating an expression does nothing else; `StateDictOptions(full_state_dict=True)` counts."""
    if isinstance(value, ast.Call):
        given = [*value.args, *(k.value for k in value.keywords)]
        is_options = ast.unparse(value.func).rpartition(".")[2] == "StateDictOptions"
        return is_options and all(isinstance(argument, ast.Constant) for argument in given)
    return all(isinstance(part, _PURE) or _only_reads(part) for part in ast.walk(value))


def _only_reads(part: ast.AST) -> bool:
    """`state["model"]`, and what a list is made of in `[True for handle in handles]`."""
    match part:
        case ast.Subscript():
            return isinstance(part.slice, ast.Constant)
        case ast.comprehension():
            return isinstance(part.iter, ast.Name) and not part.ifs and not part.is_async
    return isinstance(part, ast.ListComp)


def _reads(module: Module, names: set[str]) -> set[tuple[str, str]]:
    """Each function in which some names are read, functions within it included, with the name."""
    found: set[tuple[str, str]] = set()
    for node in module.named(*sorted(names)) if names else ():
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            functions = (p for p in module.ancestors(node) if isinstance(p, _FUNCTIONS))
            found |= {(_path(module, function), node.id) for function in functions}
    return found


def _path(module: Module, function: ast.AST) -> str:
    """A function's name behind those of what it is in."""
    around = [p for p in module.ancestors(function) if isinstance(p, (*_FUNCTIONS, ast.ClassDef))]
    return ".".join(getattr(one, "name", "") for one in (*reversed(around), function))


def _is_read(module: Module, function: ast.AST, name: str) -> bool:
    """Whether a function reads a name, or may do so by other means."""
    nodes: list[ast.AST] = [
        node
        for node in module.named(name, *_BY_NAME)
        if isinstance(node, ast.Name) and (node.id != name or not isinstance(node.ctx, ast.Store))
    ]
    for kind in (ast.Global, ast.Nonlocal):
        nodes += [n for n in module.nodes(kind) if name in n.names]  # type: ignore[attr-defined]
    return any(function in module.ancestors(node) for node in nodes)


def _has_neighbours(module: Module, statement: ast.stmt) -> bool:
    return len(module.block(statement)) > 1
