"""What a function of the project can return, where it returns only constants: `fsdp_version` gives 1 or 2."""

from __future__ import annotations

import ast
from collections.abc import Callable

from codemods.analysis.module import Module
from codemods.dual_stack.fold import Fold
from codemods.project import Project

_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


class Results:
    """The constants that functions of a project can return.

    A function's branches are left out where the condition before them is known.
    """

    def __init__(self, project: Project, fold: Callable[[Module, ast.expr], Fold]) -> None:
        self._project = project
        self._fold = fold
        self._returns: dict[ast.AST, frozenset[object] | None] = {}
        self._active: set[ast.AST] = set()

    def of_call(self, module: Module, call: ast.expr | None) -> frozenset[object] | None:
        """The constants that a call of a function of the project can give, where it gives only constants."""
        if not isinstance(call, ast.Call):
            return None
        symbol = self._project.resolve(module, call.func)
        if symbol is None or symbol.module is None or not isinstance(symbol.node, _FUNCTIONS):
            return None
        function = symbol.node
        if function in self._active or function.decorator_list or not _tells(symbol.module, function):
            return None
        if function not in self._returns:
            self._active.add(function)
            try:
                found: set[object] = set()
                falls = self._walk(symbol.module, function.body, found)
                self._returns[function] = frozenset(found | ({None} if falls else set()))
            except _NotConstant:
                self._returns[function] = None
            finally:
                self._active.discard(function)
        return self._returns[function]

    def _walk(self, module: Module, body: list[ast.stmt], found: set[object]) -> bool:
        """Collect what a block can return; whether its end can be reached."""
        for statement in body:
            match statement:
                case ast.Return(value=value):
                    found.add(self._constant(module, value))
                    return False
                case ast.Raise():
                    return False
                case ast.If(test=test):
                    known = self._fold(module, test).value
                    branches = [
                        b
                        for b, out in ((statement.body, False), (statement.orelse, True))
                        if known is not out
                    ]
                    ends = [self._walk(module, branch, found) for branch in branches]  # all are walked
                    if not any(ends):
                        return False
                case ast.Expr() | ast.Pass() | ast.Import() | ast.ImportFrom():
                    pass
                case _:
                    raise _NotConstant
        return True

    def _constant(self, module: Module, value: ast.expr | None) -> object:
        if value is None:
            return None
        if isinstance(value, ast.Constant):
            return value.value
        known = self._fold(module, value).value
        if known is None:
            raise _NotConstant
        return known


class _NotConstant(Exception):
    """A function gives something else than constants."""


def call_behind(module: Module, node: ast.expr) -> ast.expr | None:
    """The call that gave a local name its only value; a call itself."""
    if isinstance(node, ast.Call):
        return node
    found = module.scope_of(node).lookup(node.id) if isinstance(node, ast.Name) else None
    bindings = found[1] if found is not None else []
    return bindings[0].value if len(bindings) == 1 and not bindings[0].unpack else None


def _tells(module: Module, function: ast.AST) -> bool:
    """Whether a function may be about the stacks: it names FSDP."""
    return "fsdp" in ast.unparse(function).lower()


def among(results: frozenset[object], op: ast.cmpop, right: ast.expr) -> bool | None:
    """The answer of a comparison with a constant that is the same for every result."""
    try:
        value = ast.literal_eval(right)
    except (ValueError, TypeError, SyntaxError):
        return None
    answers: set[bool] = set()
    for result in results:
        match op:
            case ast.Eq() | ast.Is():
                answers.add(result == value)
            case ast.NotEq() | ast.IsNot():
                answers.add(result != value)
            case ast.In() | ast.NotIn() if isinstance(value, list | tuple | set):
                answers.add((result in value) is isinstance(op, ast.In))
            case _:
                return None
    return answers.pop() if len(answers) == 1 else None
