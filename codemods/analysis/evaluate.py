"""Follows expressions to values: through names, modules, dicts, calls and parameters."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from codemods.analysis.arguments import argument_for, default_of, is_bound_call
from codemods.analysis.callers import Callers
from codemods.analysis.dict_writes import writes
from codemods.analysis.flow import reaching
from codemods.analysis.holding import key_of
from codemods.analysis.index import Index
from codemods.analysis.module import Module
from codemods.analysis.scopes import Binding, BindingKind, below
from codemods.analysis.values import (
    CallValue,
    DictValue,
    Literal,
    Named,
    Opaque,
    Origin,
    Sequenced,
    Value,
    choice,
    options,
)

_DEEPEST = 24


@dataclass(slots=True)
class Evaluator:
    """Follows expressions to values.

    Attributes:
        callers: the calls of functions in the project, so that parameters have values.
    """

    index: Index
    callers: Callers
    _active: set[ast.AST] = field(default_factory=set)

    def evaluate(self, module: Module, node: ast.expr) -> Value:
        """What `node`, standing in `module`, comes to."""
        origin = Origin(module, node)
        if node in self._active or len(self._active) > _DEEPEST:
            return Opaque("it depends on itself", origin)
        self._active.add(node)
        try:
            return self._evaluate(module, node, origin)
        finally:
            self._active.discard(node)

    def _evaluate(self, module: Module, node: ast.expr, origin: Origin) -> Value:
        match node:
            case ast.Constant():
                return Literal(node.value, origin)
            case ast.Name():
                return self._name(module, node, origin)
            case ast.Attribute():
                return self._attribute(module, node, origin)
            case ast.Tuple() | ast.List() | ast.Set():
                return Sequenced(tuple(node.elts), origin)
            case ast.IfExp():
                return choice([self.evaluate(module, node.body), self.evaluate(module, node.orelse)], origin)
            case ast.BoolOp():
                return choice([self.evaluate(module, value) for value in node.values], origin)
            case ast.Dict():
                return self._dict(module, node, origin)
            case ast.Subscript():
                return self._subscript(module, node, origin)
            case ast.Call():
                return self._call(module, node, origin)
            case ast.Lambda():
                return Opaque("a lambda", origin)
            case ast.NamedExpr():
                return self.evaluate(module, node.value)
        return Opaque("an expression", origin)

    def _name(self, module: Module, node: ast.Name, origin: Origin) -> Value:
        found = module.scope_of(node).lookup(node.id)
        if found is None or any(b.kind is BindingKind.IMPORT for b in found[1]):
            return self._imported(module, node, origin)
        scope, bindings = found
        live = reaching(module, scope, bindings, node)
        values = [self._binding(module, b, origin) for b in live]
        mutated = self._mutations(module, node, values)
        return mutated or choice(values, origin)

    def _imported(self, module: Module, node: ast.expr, origin: Origin) -> Value:
        symbol = self.index.resolve(module, node)
        if symbol is not None:
            return Named(symbol, origin)
        variable = self._variable(module, node)
        if variable is not None:
            return variable
        return Opaque("its definition was not found", origin)

    def _variable(self, module: Module, node: ast.expr) -> Value | None:
        """A module-level variable of another module: `from .precision import bf16`, `policies.bf16`."""
        if isinstance(node, ast.Name):
            found = module.scope_of(node).lookup(node.id)
            targets = [b.target for b in (found[1] if found else []) if b.kind is BindingKind.IMPORT]
            stars = module.scope.star_imports if found is None else []
            for target in (*targets, *(below(star, node.id) for star in stars)):
                value = self._taken(module, target)
                if value is not None:
                    return value
        elif isinstance(node, ast.Attribute):
            base = self.index.resolve(module, node.value)
            if base is not None and base.module is not None and isinstance(base.node, ast.Module):
                return self._variable_of(base.module, node.attr)
        return None

    def _taken(self, module: Module, target: str) -> Value | None:
        """What an import's dotted target means, if that is a variable."""
        holder = self.index.holder(module, target)
        return self._variable_of(holder, target.rpartition(".")[2]) if holder is not None else None

    def _variable_of(self, module: Module, name: str) -> Value | None:
        bindings = module.scope.bindings.get(name, [])
        imports = [b for b in bindings if b.kind is BindingKind.IMPORT]
        if imports:
            return self._taken(module, imports[-1].target)
        values = [self._binding(module, b, None) for b in bindings if b.value is not None]
        return choice(values, values[0].origin) if values else None

    def _binding(self, module: Module, binding: Binding, use: Origin | None) -> Value:
        origin = use or Origin(module, binding.value or ast.Constant(None))
        match binding.kind:
            case BindingKind.ASSIGN if binding.value is not None:
                return self.unpacked(module, binding.value, binding.unpack)
            case BindingKind.DEFINITION:
                symbol = self.index.lookup(module, module.scope_of(binding.node), binding.name)
                return Named(symbol, origin) if symbol else Opaque("a definition", origin)
            case BindingKind.PARAMETER:
                return self._parameter(module, binding, origin)
        return Opaque(f"bound by a {binding.kind.value}", origin)

    def unpacked(self, module: Module, node: ast.expr, path: tuple[int, ...]) -> Value:
        """The value of one element of a (nested) tuple value."""
        value = self.evaluate(module, node)
        if not path:
            return value
        found = []
        for option in options(value):
            if isinstance(option, Sequenced) and -len(option.elements) <= path[0] < len(option.elements):
                found.append(self.unpacked(option.origin.module, option.elements[path[0]], path[1:]))
            else:
                found.append(Opaque("one of several results", option.origin))
        return choice(found, Origin(module, node))

    def _parameter(self, module: Module, binding: Binding, origin: Origin) -> Value:
        assert isinstance(binding.node, ast.arg)
        arguments = module.parent(binding.node)
        function = module.parent(arguments) if arguments else None
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            return Opaque(f"parameter `{binding.name}`", origin)
        values: list[Value] = []
        calls = self.callers.of(module, function)
        for caller, call in calls:
            bound = is_bound_call(self.index, module, function, caller, call)
            argument = argument_for(function, binding.name, call, bound=bound)
            if isinstance(argument, ast.expr):
                values.append(self.evaluate(caller, argument))
            elif argument is None:
                values.append(Opaque(f"parameter `{binding.name}`", origin))
        default = default_of(function, binding.name)
        if default is not None and (not values or len(values) < len(calls)):
            values.append(self.evaluate(module, default))
        if not calls:
            values.append(Opaque(f"parameter `{binding.name}`", origin))
        return choice(values, origin)

    def _attribute(self, module: Module, node: ast.Attribute, origin: Origin) -> Value:
        symbol = self.index.resolve(module, node)
        if symbol is not None:
            return Named(symbol, origin)
        variable = self._variable(module, node)
        if variable is not None:
            return variable
        return self._field(module, node) or Opaque(f"attribute `{ast.unparse(node)}`", origin)

    def _field(self, module: Module, node: ast.Attribute) -> Value | None:
        """A field of a class of the project, or of an object of one: its default and what a call gives it."""
        found: list[Value] = []
        for option in options(self.evaluate(module, node.value)):
            holder = option.symbol if isinstance(option, Named) else None
            if isinstance(option, CallValue):
                holder = option.function
                if node.attr in option.keywords:
                    found.append(self.evaluate(option.origin.module, option.keywords[node.attr]))
                    continue
            if holder is None or holder.module is None or not isinstance(holder.node, ast.ClassDef):
                return None
            bindings = holder.module.table.scopes[holder.node].bindings.get(node.attr, [])
            values = [b.value for b in bindings if b.kind is BindingKind.ASSIGN and b.value is not None]
            if not values:
                return None
            found += [self.evaluate(holder.module, value) for value in values]
        origin = Origin(module, node)
        return choice([*found, Opaque("a field can be assigned later", origin)], origin) if found else None

    def _dict(self, module: Module, node: ast.Dict, origin: Origin) -> Value:
        items: dict[str, list[Origin]] = {}
        places: dict[str, list[tuple[Module, ast.AST]]] = {}
        complete = True
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                complete = self._merge(module, value, items, places) and complete
            elif isinstance(key, ast.Constant) and isinstance(key.value, str):
                items[key.value] = [Origin(module, value)]
                places[key.value] = [(module, key)]
            else:
                complete = False
        return DictValue(items, places, complete, origin)

    def _merge(
        self,
        module: Module,
        node: ast.expr,
        items: dict[str, list[Origin]],
        places: dict[str, list[tuple[Module, ast.AST]]],
    ) -> bool:
        """Add the items of `**node`; whether all of them are known."""
        complete = True
        for option in options(self.evaluate(module, node)):
            if not isinstance(option, DictValue):
                complete = False
                continue
            complete = complete and option.complete
            for key, origins in option.items.items():
                items.setdefault(key, []).extend(origins)
                places.setdefault(key, []).extend(option.places[key])
        return complete

    def _mutations(self, module: Module, node: ast.Name, values: list[Value]) -> DictValue | None:
        """A dict variable with what `d["k"] = v` and `d.update(k=v)` in the same scope add to it."""
        if len(values) != 1 or not isinstance(values[0], DictValue):
            return None
        found = values[0]
        items = {k: list(v) for k, v in found.items.items()}
        places = {k: list(v) for k, v in found.places.items()}
        complete = found.complete
        for kind, key, value, at in writes(module, node):
            if kind == "key":
                items.setdefault(key, []).append(Origin(module, value))
                places.setdefault(key, []).append((module, at))
            elif kind == "merge":
                complete = self._merge(module, value, items, places) and complete
            else:
                complete = False
        return DictValue(items, places, complete, found.origin)

    def _subscript(self, module: Module, node: ast.Subscript, origin: Origin) -> Value:
        found: list[Value] = []
        key = key_of(node.slice)
        for option in options(self.evaluate(module, node.value)):
            if isinstance(option, DictValue):
                keys = [key] if isinstance(key, str) and key in option.items else list(option.items)
                found += [self.evaluate(o.module, o.node) for k in keys for o in option.items[k]]
            elif isinstance(option, Sequenced) and isinstance(key, int):
                if -len(option.elements) <= key < len(option.elements):
                    found.append(self.evaluate(option.origin.module, option.elements[key]))
            else:
                return Opaque("a lookup at run time", origin)
        return choice(found, origin) if found else Opaque("a lookup at run time", origin)

    def _call(self, module: Module, node: ast.Call, origin: Origin) -> Value:
        symbol = self.index.resolve(module, node.func)
        if symbol is None:
            if isinstance(node.func, ast.Name) and node.func.id == "dict":
                return self._dict_call(module, node, origin)
            return Opaque(f"result of `{ast.unparse(node.func)}(...)`", origin)
        if isinstance(symbol.node, ast.FunctionDef) and symbol.module is not None:
            returned = self._returned(symbol.module, symbol.node)
            if returned is not None:
                return returned
        keywords = {k.arg: k.value for k in node.keywords if k.arg is not None}
        spreads = tuple(k.value for k in node.keywords if k.arg is None)
        return CallValue(symbol, tuple(node.args), keywords, spreads, origin)

    def _dict_call(self, module: Module, node: ast.Call, origin: Origin) -> Value:
        items: dict[str, list[Origin]] = {}
        places: dict[str, list[tuple[Module, ast.AST]]] = {}
        complete = not node.args
        for argument in node.args:
            complete = self._merge(module, argument, items, places)
        for keyword in node.keywords:
            if keyword.arg is None:
                complete = self._merge(module, keyword.value, items, places) and complete
            else:
                items[keyword.arg] = [Origin(module, keyword.value)]
                places[keyword.arg] = [(module, keyword)]
        return DictValue(items, places, complete, origin)

    def _returned(self, module: Module, function: ast.FunctionDef) -> Value | None:
        values = [self.evaluate(module, r) for r in module.results(function)[0]]
        return choice(values, values[0].origin) if values else None
