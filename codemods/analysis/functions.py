"""Which functions a call means, which calls a function has, what it is given and gives back."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from codemods.analysis.arguments import arguments_for, default_of, is_bound_call, is_static
from codemods.analysis.holding import NOTHING, UNSEEN, Defined, Held, HeldSet, Instance, Path
from codemods.analysis.indirect_calls import IndirectCalls
from codemods.analysis.module import Module
from codemods.analysis.scopes import FunctionNode
from codemods.analysis.shelf import Before

if TYPE_CHECKING:
    from codemods.analysis.link import Links

Function: TypeAlias = FunctionNode
FunctionAt: TypeAlias = "tuple[Module, Function]"

_PROPERTIES = frozenset({"property", "cached_property", "abstractproperty"})


@dataclass(frozen=True, slots=True, eq=False)
class CallOf:
    """A call of a known function.

    Attributes:
        is_bound: the first parameter is filled by the object the method is called on.
    """

    module: Module
    node: ast.Call
    is_bound: bool


@dataclass(slots=True)
class Functions:
    """The part of `Links` that is about calling."""

    links: Links
    _replaced: dict[str, list[tuple[Module, ast.Call, ast.expr]]] = field(default_factory=dict)
    _indirectly: dict[ast.AST, list[tuple[Module, ast.Call]]] = field(default_factory=dict)
    _indirect_calls: IndirectCalls = field(init=False)
    _calls: dict[ast.AST, list[CallOf]] = field(default_factory=dict)
    _searching: dict[ast.AST, int] = field(default_factory=dict)
    _meant: dict[ast.expr, list[FunctionAt]] = field(default_factory=dict)
    _given: dict[ast.arg, list[tuple[Module, ast.expr, Path]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        links = self.links
        self._indirect_calls = IndirectCalls(links.index, links.classes, links.shelf, links.callers)

    def meant(self, module: Module, callee: ast.expr) -> list[FunctionAt]:
        """The functions and methods of the project that a callee can mean.

        `self.model(x)` with a property `model` calls what the property gives, and not its function.
        """
        return self.links.kept(self._meant, callee, lambda: self._find_meant(module, callee))

    def _find_meant(self, module: Module, callee: ast.expr) -> list[FunctionAt]:
        symbol = self.links.index.resolve(module, callee)
        if symbol is not None and symbol.module is None:
            return []
        if symbol is not None and isinstance(symbol.node, ast.FunctionDef | ast.AsyncFunctionDef):
            return [(symbol.module, symbol.node)] if symbol.module is not None else []
        found: list[FunctionAt] = []
        if isinstance(callee, ast.Attribute):
            if not self.links.shelf.may_define(callee.attr):
                return []
            methods = self.links.classes.methods_of(self.links.held(module, callee.value), callee.attr)
            found += [one for one in methods if not is_property(one[1])]
            if _is_super(callee.value):
                owner = module.class_of(callee)
                if owner is not None:
                    found += self.links.classes.inherited(owner, module, callee.attr)
        if not found:
            for held in self.links.held(module, callee):
                if isinstance(held, Defined) and not isinstance(held.node, ast.ClassDef):
                    found.append((held.module, held.node))
                elif isinstance(held, Instance):
                    found += self.links.classes.methods(held, "__call__")
        return list(dict.fromkeys(found))

    def returned(self, module: Module, function: Function, path: Path) -> HeldSet:
        """What a call of a function gives; of a generator, what its elements are."""
        if isinstance(function, ast.Lambda):
            return self.links.at(module, function.body, path)
        returned, yielded = module.results(function)
        if not yielded:
            return NOTHING.union(*(self.links.at(module, value, path) for value in returned))
        if not path:
            return NOTHING
        parts: list[HeldSet] = []
        for value in yielded:
            is_from = isinstance(module.parent(value), ast.YieldFrom)
            parts.append(self.links.at(module, value, path if is_from else path[1:]))
        return NOTHING.union(*parts)

    def calls(self, module: Module, function: Function) -> list[CallOf]:
        """Every call of a function found in the project."""
        if function in self._calls:
            return self._calls[function]
        if function in self._searching:
            self.links.cut(self._searching[function])
            return []
        self._searching[function] = self.links.depth
        try:
            found = self._find_calls(module, function)
        finally:
            del self._searching[function]
        self._calls[function] = found
        return found

    def _find_calls(self, module: Module, function: Function) -> list[CallOf]:
        if isinstance(function, ast.Lambda):
            return self._calls_of_lambda(module, function)
        owner = module.parent(function)
        calls = [*self.links.callers.of(module, function), *self._indirect(module, function)]
        found = [self.call_of(module, function, home, call) for home, call in calls]
        if isinstance(owner, ast.ClassDef):
            if function.name == "__init__":
                found += self._constructions(module, function, owner)
            found += self._method_calls(module, function, owner)
        return found

    def _constructions(self, module: Module, function: ast.AST, owner: ast.ClassDef) -> list[CallOf]:
        """Calls of a class, and of classes that inherit its constructor."""
        found = []
        for node, home in [(owner, module), *self.links.classes.heirs(owner, module)]:
            used = self.links.classes.methods(Instance(node, home), "__init__")
            if any(method is function for _, method in used):
                calls = [*self.links.callers.of(home, node), *self._indirect(home, node)]
                found += [CallOf(where, call, True) for where, call in calls]
                found += self._by_cls(node, home)
        return found

    def _by_cls(self, owner: ast.ClassDef, module: Module) -> list[CallOf]:
        """`cls(...)` in the methods of a class and of its bases."""
        found = []
        for node, home in self.links.classes.lineage(owner, module):
            for call in home.called("cls"):
                if isinstance(call.func, ast.Name) and node in home.ancestors(call):
                    found.append(CallOf(home, call, True))
        return found

    def _method_calls(
        self, module: Module, function: ast.FunctionDef | ast.AsyncFunctionDef, owner: ast.ClassDef
    ) -> list[CallOf]:
        found = []
        is_bound = not is_static(function)
        for home, call in self._calls_by_attribute(function.name, owner, module):
            assert isinstance(call.func, ast.Attribute)
            if _is_super(call.func.value):
                inside = home.class_of(call)
                reached = self.links.classes.inherited(inside, home, function.name) if inside else []
                if any(method is function for _, method in reached):
                    found.append(CallOf(home, call, is_bound))
                continue
            held = self.links.held(home, call.func.value)
            if (module, function) in self.links.classes.methods_of(held, function.name):
                found.append(CallOf(home, call, is_bound))
        return found

    def _calls_by_attribute(
        self, name: str, owner: ast.ClassDef, module: Module
    ) -> Iterator[tuple[Module, ast.Call]]:
        """Every `x.name(...)` that may be a method of a class.

        `self` and `super()` can be so only in the class, its bases and its heirs.
        """
        family = {home.path for _, home in self.links.classes.family(Instance(owner, module, is_exact=False))}
        shelf = self.links.shelf
        others = shelf.together(module.path).among(shelf.where(name, rb"\s*\)*\s*\(", Before.ANOTHER_CALLED))
        for home in shelf.load(sorted(family | others)):
            for call in home.called(name):
                if isinstance(call.func, ast.Attribute):
                    yield home, call

    def replacements(self, name: str) -> list[tuple[Module, ast.Call, ast.expr]]:
        """Every `dataclasses.replace(x, name=value)`, whatever it is called, and the value."""
        if name not in self._replaced:
            found: list[tuple[Module, ast.Call, ast.expr]] = []
            shelf = self.links.shelf
            paths = set(shelf.where(name, rb"\s*=(?!=)")).intersection(shelf.with_word("replace"))
            for module in shelf.load(sorted(paths)):
                is_imported = "dataclasses" in module.text
                for call in module.called("replace"):
                    if call.args and (isinstance(call.func, ast.Attribute) or is_imported):
                        found += [(module, call, k.value) for k in call.keywords if k.arg == name]
            self._replaced[name] = found
        return self._replaced[name]

    def _indirect(self, module: Module, definition: ast.AST) -> list[tuple[Module, ast.Call]]:
        """The calls of a definition that something else makes."""
        if definition not in self._indirectly:
            self._indirectly[definition] = list(self._indirect_calls.of(module, definition))
        return self._indirectly[definition]

    def _calls_of_lambda(self, module: Module, function: ast.Lambda) -> list[CallOf]:
        """Calls through the variable that a lambda is assigned to, or at its own place."""
        statement = module.parent(function)
        if isinstance(statement, ast.Call) and statement.func is function:
            return [CallOf(module, statement, False)]
        if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
            return []
        name, scope = statement.targets[0].id, module.scope_of(function)
        found = []
        for call in module.called(name):
            if isinstance(call.func, ast.Name):
                seen = module.scope_of(call.func).lookup(name)
                if seen is not None and seen[0] is scope:
                    found.append(CallOf(module, call, False))
        return found

    def call_of(self, module: Module, function: Function, home: Module, call: ast.Call) -> CallOf:
        """A call, with what is known of how the function is called there."""
        bound = is_bound_call(self.links.index, module, function, home, call)
        return CallOf(home, call, bound)

    def given(self, module: Module, function: Function, parameter: ast.arg, path: Path) -> HeldSet:
        """What every call gives to a parameter."""
        calls = self.calls(module, function)
        held: set[Held] = set()
        if parameter in (function.args.vararg, function.args.kwarg):
            for call in calls:
                arguments = arguments_for(function, parameter, call.node, path, bound=call.is_bound)
                for argument, inner in arguments:
                    held |= self.links.at(call.module, argument, inner)
        elif calls:
            for home, given, at in self._arguments(module, function, parameter, calls):
                held |= self.links.at(home, given, (*at, *path))
        return frozenset(held) if calls else frozenset({UNSEEN})

    def _arguments(
        self, module: Module, function: Function, parameter: ast.arg, calls: list[CallOf]
    ) -> list[tuple[Module, ast.expr, Path]]:
        """What calls give to a parameter, or its default, and where in it: the same for whatever is asked."""
        found = self._given.get(parameter)
        if found is None:
            found = self._given[parameter] = []
            default = default_of(function, parameter.arg)
            for call in calls:
                arguments = arguments_for(function, parameter, call.node, (), bound=call.is_bound)
                found += [(call.module, argument, at) for argument, at in arguments]
                if not arguments and default is not None:
                    found.append((module, default, ()))
        return found


def _is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def is_property(method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether reading a method's name gives what it returns."""
    words = {ast.unparse(decorator).rpartition(".")[2] for decorator in method.decorator_list}
    return bool(words & _PROPERTIES)
