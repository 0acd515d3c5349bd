"""Functions that something else calls: `functools.partial(f, x)`, `Thread(target=f, args=(x,))`,
`executor.submit(f, x)`, `spawn(f, args=(x,))`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.analysis.callers import Callers
from codemods.analysis.classes import Classes
from codemods.analysis.holding import Instance
from codemods.analysis.index import Index
from codemods.analysis.module import Module
from codemods.analysis.shelf import Shelf

_FIRST = frozenset({"submit", "to_thread", "partial", "call_soon", "run_sync"})
_SPAWN = frozenset({"spawn", "start_processes"})
_WORDS = sorted(word.encode() for word in _FIRST | _SPAWN | {"run_in_executor", "apply", "apply_async"})
_ASKING = rb"(?:\b(?:target|fn)\s*=|\b(?:%s)\s*\()[^=)]*" % b"|".join(_WORDS)
"""What stands before a function that is handed to something which calls it."""


class IndirectCalls:
    """Finds the calls of a definition that something else makes."""

    def __init__(self, index: Index, classes: Classes, shelf: Shelf, callers: Callers) -> None:
        self._index = index
        self._classes = classes
        self._shelf = shelf
        self._callers = callers

    def of(self, module: Module, definition: ast.AST) -> Iterator[tuple[Module, ast.Call]]:
        """The calls, written as if they stood there.

        They are made for this answer and stand in no tree; their arguments do.
        """
        if not isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return
        names = self._callers.names(module, definition)
        for home in self._homes(module, names):
            for call in dict.fromkeys(c for used in home.named(*names) for c in _calls_around(home, used)):
                for function, arguments, keywords in handed_on(call):
                    found = meant_by(self._index, self._classes, home, function)
                    if found is not None and found[1] is definition:
                        yield home, ast.Call(function, arguments, keywords)

    def _homes(self, module: Module, names: tuple[str, ...]) -> list[Module]:
        """The modules in which something may be asked to call one of the names."""
        found = {module.path}
        for word in names:
            found.update(self._shelf.where(word, rb"(?!\s*\()", before=_ASKING))
        return self._shelf.load(sorted(found))


def meant_by(
    index: Index, classes: Classes, module: Module, function: ast.expr
) -> tuple[Module, ast.AST] | None:
    """The definition that an expression means which is handed to something that calls it."""
    symbol = index.resolve(module, function)
    if symbol is not None:
        if symbol.module is None or symbol.node is None:
            return None
        return symbol.module, symbol.node
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        owner = module.class_of(function) if function.value.id == "self" else None
        if owner is not None:
            methods = classes.methods(Instance(owner, module), function.attr)
            return methods[0] if methods else None
    return None


def _calls_around(module: Module, node: ast.AST) -> Iterator[ast.Call]:
    """The call of which a node is an argument."""
    parent = module.parent(node)
    if isinstance(parent, ast.keyword):
        parent = module.parent(parent)
    if isinstance(parent, ast.Call) and parent.func is not node:
        yield parent


def handed_on(call: ast.Call) -> Iterator[tuple[ast.expr, list[ast.expr], list[ast.keyword]]]:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    told = {k.arg: k.value for k in call.keywords}
    if "target" in told or ("args" in told and name in _SPAWN | {"apply_async", "apply"}):
        function = told.get("target") or told.get("fn") or (call.args[0] if call.args else None)
        if function is not None:
            rank: list[ast.expr] = [ast.Constant(0)] if name in _SPAWN else []
            yield function, [*rank, *_elements(told.get("args"))], _keywords(told.get("kwargs"))
    elif name in _FIRST and call.args:
        yield call.args[0], call.args[1:], call.keywords
    elif name == "run_in_executor" and len(call.args) > 1:
        yield call.args[1], call.args[2:], []


def _elements(node: ast.expr | None) -> list[ast.expr]:
    if isinstance(node, ast.Tuple | ast.List):
        return list(node.elts)
    return [ast.Starred(node, ast.Load())] if node is not None else []


def _keywords(node: ast.expr | None) -> list[ast.keyword]:
    return [ast.keyword(None, node)] if node is not None else []
