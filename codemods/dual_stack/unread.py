"""Parameters that only the dropped branches read: they go, and so does what every call gives for them.

    def state_context(model, kind, config):        def state_context(model):
        if version(model) == 1:                        return nullcontext()
            return FSDP.state_dict_type(
                model, kind, config)
        return nullcontext()

The function must be one of a module, or a method of a class there, whose every mention in the project is a
call that can be read, an import or its definition, and what the calls give must do nothing but be a value.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from codemods.analysis.module import Module
from codemods.dual_stack.pure import is_pure
from codemods.editing.apply import compatible
from codemods.editing.removal import delete_arguments, delete_parameters
from codemods.model import Edit
from codemods.project import Project


@dataclass(frozen=True, slots=True, eq=False)
class CallAt:
    """A call of a function that is looked at."""

    module: Module
    node: ast.Call


def unread_edits(
    project: Project,
    before: dict[str, str],
    only: frozenset[str] | None,
    mentioned: Callable[[], frozenset[str]],
) -> list[list[Edit]]:
    """Edits that remove parameters, in groups of one file each; all are to be done, or none.

    Args:
        before: file -> its text before anything was dropped.
        only: the files that may be changed; all if None.
        mentioned: words of the files that are no Python.
    """
    by_path: dict[str, list[Edit]] = {}
    for module in list(project.modules.values()):
        text = before.get(module.path, module.text)
        if text == module.text:
            continue
        had = dict(functions_of(ast.parse(text)))
        for owner, function in functions_of(module.tree):
            if owner not in had:
                continue
            names = _unread(function, had[owner])
            if not names or function.name in mentioned():
                continue
            edits = _removed(project, module, function, names)
            paths = {edit.path for edit in edits}
            if only is not None and not paths <= only:
                continue
            if all(compatible(new, old) for new in edits for old in by_path.get(new.path, ())):
                for edit in edits:
                    by_path.setdefault(edit.path, []).append(edit)
    return list(by_path.values())


def functions_of(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions of a module and the methods of its classes, by their qualified names."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            methods = (method for method in node.body if isinstance(method, ast.FunctionDef))
            yield from ((f"{node.name}.{method.name}", method) for method in methods)


def _unread(function: ast.FunctionDef, had: ast.FunctionDef) -> list[str]:
    """Parameters that nothing in a function reads any more, though it did; its signature must be plain."""
    given = function.args
    if given.vararg or given.kwarg or given.posonlyargs or function.decorator_list:
        return []
    if ast.dump(given) != ast.dump(had.args):
        return []
    now, then = (
        {n.id for s in f.body for n in ast.walk(s) if isinstance(n, ast.Name)} for f in (function, had)
    )
    if now & {"locals", "vars", "eval", "exec"}:
        return []
    told = ast.get_docstring(function) or ""
    names = [p.arg for p in (*given.args, *given.kwonlyargs) if p.arg not in ("self", "cls")]
    return [n for n in names if n in then and n not in now and not re.search(rf"\b{n}\b", told)]


def _removed(project: Project, module: Module, function: ast.FunctionDef, names: Sequence[str]) -> list[Edit]:
    """The edits; none where some call cannot be read."""
    calls = calls_of(project, module, function)
    if not calls:  # of a function that nothing here calls, the callers are elsewhere
        return []
    positions = [i for i, p in enumerate(function.args.args) if p.arg in names]
    edits = delete_parameters(module, function, names)
    is_method = isinstance(module.parent(function), ast.ClassDef)
    given = [position - is_method for position in positions]
    for call in calls:
        if any(isinstance(a, ast.Starred) for a in call.node.args) or call.module.path.endswith(".ipynb"):
            return []
        if any(k.arg is None for k in call.node.keywords):
            return []
        going: list[ast.expr | ast.keyword] = [a for i, a in enumerate(call.node.args) if i in given]
        going += [k for k in call.node.keywords if k.arg in names]
        if not all(is_pure(project, call.module, argument) for argument in going):
            return []
        edits += delete_arguments(call.module, call.node, going)
    return edits


def calls_of(project: Project, module: Module, function: ast.FunctionDef) -> list[CallAt] | None:
    """Every call of a function; None where it is mentioned in another way, or another may be meant."""
    found: list[CallAt] = []
    word = re.compile(rf"\b{re.escape(function.name)}\b")
    for other in list(project.modules.values()):
        if function.name not in other.text:
            continue
        calls = list(_resolved(project, module, function, other))
        defined = 1 if other is module else 0
        if len(word.findall(other.text)) != len(calls) + _imports_of(other, function.name) + defined:
            return None
        found += [CallAt(other, call) for call in calls]
    return found


def _resolved(
    project: Project, home: Module, function: ast.FunctionDef, module: Module
) -> Iterator[ast.Call]:
    """The calls of a function in a module; of a method those on an object of its class."""
    if isinstance(home.parent(function), ast.ClassDef):
        found = project.links.functions.calls(home, function)
        yield from (call.node for call in found if call.module is module and call.is_bound)
        return
    for call in module.called(function.name):
        symbol = project.resolve(module, call.func)
        if symbol is not None and symbol.node is function:
            yield call


def _imports_of(module: Module, name: str) -> int:
    return sum(
        alias.name == name and alias.asname is None
        for node in module.nodes(ast.ImportFrom)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    )
