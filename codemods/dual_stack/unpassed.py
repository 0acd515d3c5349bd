"""Parameters that only the dropped branches gave: what is left always has their defaults.

    def gathered(model, cpu=False):                def gathered(model):
        return whole(model, to_cpu=cpu)                return whole(model, to_cpu=False)

A parameter goes where every call of its function can be read and none gives it, its default is a constant and
nothing is decided by it; what a package offers to others keeps it. Where it stays, that is said.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from codemods.analysis.module import Module
from codemods.dual_stack.spot import DROPPED
from codemods.dual_stack.unread import CallAt, calls_of, functions_of
from codemods.editing.code import finding
from codemods.editing.removal import delete_parameters
from codemods.model import Edit, Finding
from codemods.project import Project

_DECIDES = (
    *(ast.If, ast.IfExp, ast.While, ast.BoolOp, ast.UnaryOp, ast.Compare, ast.Assert, ast.comprehension),
    ast.Match,
)


@dataclass(frozen=True, slots=True, eq=False)
class Unpassed:
    """A parameter that nothing gives any more.

    Attributes:
        edits: what removes it; none where it stays.
        reason: why it stays.
    """

    module: Module
    function: ast.FunctionDef
    name: str
    default: str
    edits: list[Edit]
    reason: str = ""

    def note(self) -> Finding:
        """What is said of one that stays."""
        message = (
            f"only FSDP1's branch gave `{self.name}`: it always has its default `{self.default}` now, "
            f"and stays, because {self.reason}"
        )
        return finding(self.module, self.function, DROPPED, message, is_note=True)


def unpassed(
    project: Project,
    before: dict[str, str],
    only: frozenset[str] | None,
    mentioned: Callable[[], frozenset[str]],
) -> list[Unpassed]:
    """The parameters that the dropped calls gave and no call gives any more.

    Args:
        before: file -> its text before anything was dropped.
        only: the files that may be changed; all if None.
        mentioned: words of the files that are no Python.
    """
    given = _given_before(project, before)
    found: list[Unpassed] = []
    for module in list(project.modules.values()) if given else ():
        if not any(name in module.text for name in given):
            continue
        for _, function in functions_of(module.tree):
            names = given.get(function.name, set())
            if not names or module.path.endswith(".ipynb") or function.name in mentioned():
                continue
            found += _of(project, module, function, names, may_change=only is None or module.path in only)
    return found


def _given_before(project: Project, before: dict[str, str]) -> dict[str, set[str | int]]:
    """Name of a function -> keywords and positions that calls gave it which are gone."""
    given: dict[str, set[str | int]] = {}
    for path, text in before.items():
        module = project.modules.get(path)
        if module is None or module.text == text:
            continue
        had = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
        have = Counter(map(ast.dump, module.calls()))
        for call in had:
            if have[ast.dump(call)] > 0:
                continue
            name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            told = {*range(len(call.args)), *(k.arg for k in call.keywords if k.arg is not None)}
            given.setdefault(name, set()).update(told)
    return given


def _of(
    project: Project,
    module: Module,
    function: ast.FunctionDef,
    given: set[str | int],
    *,
    may_change: bool,
) -> Iterator[Unpassed]:
    parameters = function.args
    if parameters.vararg or parameters.kwarg or parameters.posonlyargs or function.decorator_list:
        return
    is_method = isinstance(module.parent(function), ast.ClassDef)
    wanted = [
        (position, name, default)
        for position, name, default in _optional(parameters)
        if name in given or (position is not None and position - is_method in given)
    ]
    calls = calls_of(project, module, function) if wanted else None
    if not calls or any(_gives_anything(call) for call in calls):
        return
    for position, name, default in wanted:
        at = None if position is None else position - is_method
        if any(_gives(call.node, at, name) for call in calls) or not _is_read(function, name):
            continue
        reason = "" if may_change else "its file is not to be changed"
        reason = reason or _reason(project, module, function, name, default)
        edits = [] if reason else _edits(module, function, name, default)
        yield Unpassed(module, function, name, module.code(default), edits, reason)


def _optional(given: ast.arguments) -> Iterator[tuple[int | None, str, ast.expr]]:
    """Position, name and default of the parameters that have one."""
    first = len(given.args) - len(given.defaults)
    for i, default in enumerate(given.defaults):
        yield first + i, given.args[first + i].arg, default
    for parameter, value in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        if value is not None:
            yield None, parameter.arg, value


def _gives_anything(call: CallAt) -> bool:
    return any(isinstance(a, ast.Starred) for a in call.node.args) or any(
        k.arg is None for k in call.node.keywords
    )


def _gives(call: ast.Call, position: int | None, name: str) -> bool:
    is_placed = position is not None and position < len(call.args)
    return is_placed or any(keyword.arg == name for keyword in call.keywords)


def _is_read(function: ast.FunctionDef, name: str) -> bool:
    return any(_names(function, name))


def _names(function: ast.FunctionDef, name: str) -> Iterator[ast.Name]:
    for statement in function.body:
        yield from (n for n in ast.walk(statement) if isinstance(n, ast.Name) and n.id == name)


def _reason(project: Project, module: Module, function: ast.FunctionDef, name: str, default: ast.expr) -> str:
    """Why a parameter has to stay; nothing if it can go."""
    parent = module.parent(function)
    if isinstance(parent, ast.ClassDef) and parent.bases and not function.name.startswith("_"):
        return "the method may be called by what its class comes from"
    offered = parent.name if isinstance(parent, ast.ClassDef) else function.name
    if module.path.endswith("__init__.py") or _is_offered(project, module, offered):
        return "the package offers this function to others"
    if not isinstance(default, ast.Constant):
        return "its default is worked out"
    if re.search(rf"\b{name}\b", ast.get_docstring(function) or ""):
        return "the docstring speaks of it"
    reads = list(_names(function, name))
    if any(isinstance(read.ctx, ast.Store | ast.Del) for read in reads) or _is_hidden(function, name):
        return "the function gives the name other values"
    around = [parent for read in reads for parent in _within_statement(module, read)]
    if any(isinstance(parent, _DECIDES) for parent in around):
        return "something is decided by it"
    if any(isinstance(parent, ast.JoinedStr) for parent in around):  # `{name=}` prints the name itself
        return "a text is made with it"
    if any(_asks(module.parent(read), read) for read in reads):
        return "something is asked of it"
    return ""


def _asks(parent: ast.AST | None, read: ast.Name) -> bool:
    """Whether a read is of a part of a value, or a call of it, which a constant written there has not."""
    if isinstance(parent, ast.Call):
        return parent.func is read
    return isinstance(parent, ast.Attribute | ast.Subscript) and parent.value is read


def _is_offered(project: Project, module: Module, name: str) -> bool:
    """Whether a package's own file imports a name from a module."""
    packages = [other for other in project.modules.values() if other.path.endswith("__init__.py")]
    return any(
        alias.name in (name, "*")
        and project.index.find("." * n.level + (n.module or ""), other.path) is module
        for other in packages
        for n in other.nodes(ast.ImportFrom)
        if isinstance(n, ast.ImportFrom)
        for alias in n.names
    )


def _is_hidden(function: ast.FunctionDef, name: str) -> bool:
    """Whether the name means something else in a part of the function, or can be reached by its text."""
    for statement in function.body:
        for node in ast.walk(statement):
            if isinstance(node, ast.arg) and node.arg == name:
                return True
            if isinstance(node, ast.Global | ast.Nonlocal) and name in node.names:
                return True
            if isinstance(node, ast.Name) and node.id in ("locals", "vars", "eval", "exec"):
                return True
    return False


def _within_statement(module: Module, node: ast.AST) -> Iterator[ast.AST]:
    """What is around a node, up to the head of its statement."""
    for parent in module.ancestors(node):
        yield parent
        if isinstance(parent, ast.stmt):
            return


def _edits(module: Module, function: ast.FunctionDef, name: str, default: ast.expr) -> list[Edit]:
    text = module.code(default)
    reads = [Edit(module.path, module.span(read), (text,)) for read in _names(function, name)]
    return [*delete_parameters(module, function, [name]), *reads]
