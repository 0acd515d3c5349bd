"""What only the dropped branches used: functions, classes, constants, attributes and local values.

A name counts as unused when the dropped text named it and no file of the project does so any more, as a word,
wherever: code, comments and strings included. Imports are settled with the rest of the rewrite.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TypeGuard

from codemods.analysis.module import Module
from codemods.dual_stack.pure import is_pure
from codemods.dual_stack.spans import is_elif, removed
from codemods.editing.apply import compatible
from codemods.editing.removal import delete_aliases
from codemods.editing.statements import annotation_words
from codemods.model import Edit, Span
from codemods.project import Project
from codemods.torch_names import is_fsdp1_import

_WORD = re.compile(r"[A-Za-z_]\w*")
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def unused_edits(
    project: Project,
    before: dict[str, str],
    only: frozenset[str] | None,
    mentioned: Callable[[], frozenset[str]],
) -> list[Edit]:
    """Edits that remove what nothing needs any more; those that overlap wait for the next round.

    Args:
        before: file -> its text before anything was dropped.
        mentioned: words of the files that are no Python.
    """
    lost_in = _lost_words(project, before)
    lost = set[str]().union(*lost_in.values())
    left = _Words(project)
    modules = [
        module
        for path, module in project.modules.items()
        if not path.endswith(".ipynb") and (only is None or path in only) and lost & left.of(path).keys()
    ]
    definitions = [(m, s) for m in modules for s in _candidates(project, m, lost)]
    edits: list[Edit] = []
    for module in modules:
        text = before.get(module.path, "")
        idle = [*_imports(project, module, text), *_locals(project, module, text)]
        idle += _emptied(project, module, text)
        for statement in (s for m, s in definitions if m is module):
            (name,) = _names_of(statement)
            # Functions of one name in several files may call themselves, and so seem to name each other.
            alike = [
                (m, s)
                for m, s in definitions
                if s is statement
                or (_names_of(s) == {name} and name in lost_in[m.path] & lost_in[module.path])
            ]
            if not left.outside(alike, name) and name not in mentioned():
                idle.append(removed(module, statement, statement))
        for edit in idle:
            if all(compatible(edit, other) for other in edits):
                edits.append(edit)
    return edits


def _lost_words(project: Project, before: dict[str, str]) -> dict[str, set[str]]:
    """File -> the words of which it has fewer than it had."""
    lost: dict[str, set[str]] = {path: set() for path in project.modules}
    for path, text in before.items():
        module = project.modules.get(path)
        if module is not None and module.text != text:
            lost[path] = set(Counter(_WORD.findall(text)) - Counter(_WORD.findall(module.text)))
    return lost


class _Words:
    """How often each word stands where."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._counts = {
            path: Counter(_WORD.findall(m.text)) - _paths_imported(m)
            for path, m in list(project.modules.items())
        }

    def of(self, path: str) -> Counter[str]:
        return self._counts[path]

    def outside(self, statements: Iterable[tuple[Module, ast.stmt]], name: str) -> int:
        """How often a name stands outside some statements, imports that nothing uses any more left out."""
        total = -sum(len(re.findall(rf"\b{re.escape(name)}\b", m.code(s))) for m, s in statements)
        for path, counts in self._counts.items():
            if name in counts:
                total += counts[name] - _idle_imports(self._project.modules[path], name, counts[name])
        return total


def _paths_imported(module: Module) -> Counter[str]:
    """The words of dotted module names in imports: `wrap` of `torch.distributed.fsdp.wrap` is no mention."""
    names = [n.module or "" for n in module.nodes(ast.ImportFrom) if isinstance(n, ast.ImportFrom)]
    return Counter(word for name in names for word in name.split(".") if "." in name)


def _idle_imports(module: Module, name: str, count: int) -> int:
    """Mentions of a name in import statements, where the file has no others; a package's are kept."""
    if module.path.endswith("__init__.py"):
        return 0
    imported = sum(
        alias.name == name and alias.asname is None
        for node in module.nodes(ast.ImportFrom)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    )
    return imported if imported == count else 0


def _candidates(project: Project, module: Module, lost: set[str]) -> Iterator[ast.stmt]:
    for statement in module.statements():
        names = _names_of(statement)
        if not names or not names <= lost or not _can_go(project, module, statement):
            continue
        yield statement


def _names_of(statement: ast.stmt) -> set[str]:
    """The names that a definition or assignment is for; none where it is neither."""
    if isinstance(statement, _DEFINITIONS):
        return {statement.name} if not statement.name.startswith("__") else set()
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
        if isinstance(target, ast.Name):
            return {target.id}
        if isinstance(target, ast.Attribute) and getattr(target.value, "id", "") == "self":
            return {target.attr}
    return set()


def _can_go(project: Project, module: Module, statement: ast.stmt) -> bool:
    parent = module.parent(statement)
    if isinstance(statement, _DEFINITIONS):
        if isinstance(parent, ast.ClassDef) and parent.bases and not _is_private(statement.name):
            return False  # may be called by the class it comes from
        decorators = [ast.unparse(d) for d in statement.decorator_list]
        return all(d in ("staticmethod", "classmethod", "property", "torch.no_grad()") for d in decorators)
    assert isinstance(statement, ast.Assign)
    is_local = isinstance(statement.targets[0], ast.Name) and module.function(statement) is not None
    if is_local:
        return False  # see `_locals`
    return is_pure(project, module, statement.value)


def _is_private(name: str) -> bool:
    return name.startswith("_")


def _locals(project: Project, module: Module, before: str) -> Iterator[Edit]:
    """Local values that nothing reads any more, though something did."""
    if module.text == before:
        return
    had, have = Counter(_WORD.findall(before)), Counter(_WORD.findall(module.text))
    for node in module.nodes(ast.Assign):
        assert isinstance(node, ast.Assign)
        target = node.targets[0]
        function = module.function(node)
        if len(node.targets) != 1 or not isinstance(target, ast.Name) or function is None:
            continue
        if had[target.id] <= have[target.id]:
            continue
        if _is_read(function, target.id):
            continue
        if is_pure(project, module, node.value):
            yield removed(module, node, node)
        else:  # it may do something: the value alone goes
            yield Edit(module.path, Span(module.span(node).start, module.span(node.value).start), ())


def _imports(project: Project, module: Module, before: str) -> Iterator[Edit]:
    """Imports of names that nothing in their file uses, though it did."""
    if module.text == before or module.path.endswith("__init__.py"):
        return
    had, have = Counter(_WORD.findall(before)), Counter(_WORD.findall(module.text))
    texts = (node.value for node in module.nodes(ast.Constant) if isinstance(node, ast.Constant))
    used = module.words() | annotation_words(module) | {text for text in texts if isinstance(text, str)}
    for node in module.nodes(ast.ImportFrom):
        assert isinstance(node, ast.ImportFrom)
        gone = [
            alias
            for alias in node.names
            if is_fsdp1_import(node, alias)  # others are settled with the rest of the rewrite
            and (name := alias.asname or alias.name) not in used
            and have[name] < had[name]
            and not is_imported_elsewhere(project, module, name)
        ]
        line = module.text[module.span(node).start : module.line_end(module.span(node).end)]
        if not gone or "noqa" in line:
            continue
        if len(gone) == len(node.names):
            yield removed(module, node, node)
        else:
            yield from delete_aliases(module, node, gone)


def _emptied(project: Project, module: Module, before: str) -> Iterator[Edit]:
    """`if` statements of which nothing is left."""
    if module.text == before:
        return
    had = Counter(ast.dump(node.test) for node in ast.walk(ast.parse(before)) if _is_empty(node))
    for node in module.nodes(ast.If):
        assert isinstance(node, ast.If)
        if not _is_empty(node) or had[ast.dump(node.test)] or is_elif(module, node):
            continue
        if is_pure(project, module, node.test):
            yield removed(module, node, node)


def _is_empty(node: ast.AST) -> TypeGuard[ast.If]:
    return isinstance(node, ast.If) and not node.orelse and all(isinstance(s, ast.Pass) for s in node.body)


def is_imported_elsewhere(project: Project, module: Module, name: str) -> bool:
    """Whether another file imports a name from here, or may do so."""
    return any(
        alias.name in (name, "*")
        and project.index.find("." * n.level + (n.module or ""), other.path) is module
        for other in list(project.modules.values())
        if other is not module
        for n in other.nodes(ast.ImportFrom)
        if isinstance(n, ast.ImportFrom)
        for alias in n.names
    )


def _is_read(function: ast.AST, name: str) -> bool:
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Store):
            return True
        if isinstance(node, ast.Name) and node.id in ("locals", "eval", "exec", "vars"):
            return True
        if isinstance(node, ast.Global | ast.Nonlocal) and name in node.names:
            return True
        if isinstance(node, ast.AugAssign) and getattr(node.target, "id", "") == name:
            return True
    return False
