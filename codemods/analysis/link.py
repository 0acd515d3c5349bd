"""Which expressions hold a sharded model, or an optimizer of one, anywhere in the project.

A question is answered on demand: the expression is followed backwards through assignments, attributes,
parameters (to every call), return values, containers and pass-through methods, until it reaches a wrap call
or something that is none.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from codemods.analysis.flow import reaching
from codemods.analysis.index import Index, Module, Symbol
from codemods.analysis.scopes import Binding, BindingKind
from codemods.analysis.values import argument_for, is_bound_call, returns_of
from codemods.torch_names import FSDP

PASS_THROUGH = frozenset(
    {"to", "cuda", "cpu", "half", "float", "bfloat16", "train", "eval", "requires_grad_", "double"}
)
"""Methods of `nn.Module` that give the module back."""

_PASS_THROUGH_CALLS = frozenset({"torch.compile", "typing.cast", "copy.copy"})
_STATIC = frozenset(
    {
        "state_dict_type",
        "set_state_dict_type",
        "get_state_dict_type",
        "optim_state_dict",
        "optim_state_dict_to_load",
        "full_optim_state_dict",
        "sharded_optim_state_dict",
        "summon_full_params",
        "fsdp_modules",
    }
)


@dataclass(frozen=True, slots=True, eq=False)
class WrapCall:
    """A call that makes, or will make, an FSDP1 wrapper.

    Attributes:
        kind: `call`: FSDP(m); `partial`: functools.partial(FSDP, ...); `wrap`: wrap(m) within enable_wrap.
        block: the innermost `with enable_wrap(...)` around a wrap(m) in the same function.
    """

    module: Module
    node: ast.Call
    kind: str = "call"
    block: ast.With | None = None

    @property
    def settings(self) -> ast.Call:
        """The call that holds the keywords: the constructor's, or that of `enable_wrap` around a `wrap`."""
        item = self.block.items[0].context_expr if self.block is not None else None
        return item if isinstance(item, ast.Call) else self.node

    @property
    def function(self) -> ast.expr:
        """The expression that names the constructor."""
        return self.node.args[0] if self.kind == "partial" else self.node.func

    @property
    def arguments(self) -> list[ast.expr]:
        """Positional arguments of the constructor, the module first."""
        return self.node.args[1:] if self.kind == "partial" else self.node.args

    @property
    def wrapped(self) -> ast.expr | None:
        """The module argument."""
        for keyword in self.node.keywords:
            if keyword.arg == "module":
                return keyword.value
        return self.arguments[0] if self.arguments else None


@dataclass(frozen=True, slots=True)
class Sharded:
    """Always a sharded model; the wrap calls it can come from (none where only an annotation says so)."""

    sites: frozenset[WrapCall]


@dataclass(frozen=True, slots=True)
class Maybe:
    """A sharded model on some paths, something else or unknown on others."""

    sites: frozenset[WrapCall]


@dataclass(frozen=True, slots=True)
class No:
    """Nothing says that it is a sharded model."""


Holding: TypeAlias = "Sharded | Maybe | No"


@dataclass(frozen=True, slots=True)
class _Instance:
    """An object of a class of the project."""

    node: ast.ClassDef
    module: Module


class _Other:
    """Something that is not a sharded model, or is not known."""


class _Declared:
    """Said to be a sharded model, by an annotation or by a call of one of FSDP1's static methods on it."""


class _Before:
    """The value an attribute had before it was wrapped in place."""


OTHER = _Other()
DECLARED = _Declared()


@dataclass(frozen=True, slots=True)
class _Optimizer:
    """An optimizer over the parameters of what these expressions hold."""

    node: ast.Call
    module: Module


_Held: TypeAlias = "WrapCall | _Instance | _Optimizer | _Other | _Declared"
_HeldSet: TypeAlias = "frozenset[_Held]"


@dataclass(slots=True)
class Links:
    """Answers what expressions hold.

    Attributes:
        modules: every module read.
        callers: function or class definition -> its calls.
        wraps: the call nodes that are wrap calls.
    """

    index: Index
    modules: dict[str, Module]
    callers: dict[ast.AST, list[tuple[Module, ast.Call]]]
    wraps: dict[ast.Call, WrapCall]
    _memo: dict[ast.expr, _HeldSet] = field(default_factory=dict)
    _active: set[ast.AST] = field(default_factory=set)
    _attributes: dict[str, list[tuple[Module, ast.Attribute, ast.expr, tuple[int, ...]]]] | None = None
    _methods: dict[str, list[tuple[Module, ast.Call, ast.Attribute]]] | None = None
    _evidence: dict[tuple[str, ast.AST, str], bool] | None = None

    def sharded(self, module: Module, node: ast.expr) -> Holding:
        """Whether an expression holds a sharded model where it stands."""
        held = self.held(module, node)
        sites = frozenset(h for h in held if isinstance(h, WrapCall))
        declared = any(isinstance(h, _Declared) for h in held) or self._is_evident(module, node)
        if not sites and not declared:
            return No()
        if declared or not any(isinstance(h, _Other | _Instance) for h in held):
            return Sharded(sites)
        return Maybe(sites)

    def optimizers(self, module: Module, node: ast.expr) -> list[tuple[Module, ast.Call]]:
        """The constructor calls of the optimizers an expression can hold."""
        return [(h.module, h.node) for h in self.held(module, node) if isinstance(h, _Optimizer)]

    def builds_optimizer(self, module: Module, call: ast.Call) -> bool:
        """Whether a call constructs an optimizer."""
        return _is_optimizer(self.index.resolve(module, call.func), call)

    def optimizer_of(self, module: Module, node: ast.expr) -> Holding:
        """Whether an expression holds the optimizer of a sharded model."""
        sites: set[WrapCall] = set()
        certain = True
        found = self.optimizers(module, node)
        for home, call in found:
            for models in [self.parameter_owners(home, call)]:
                for owner in models:
                    match self.sharded(home, owner):
                        case Sharded(owned):
                            sites |= owned
                        case Maybe(owned):
                            sites |= owned
                            certain = False
        if not sites:
            return No()
        return Sharded(frozenset(sites)) if certain else Maybe(frozenset(sites))

    def parameter_owners(self, module: Module, call: ast.Call) -> list[ast.expr]:
        """`m` of every `m.parameters()` or `m.named_parameters()` an optimizer call is given, through names."""
        owners: list[ast.expr] = []
        seen: set[ast.AST] = set()
        stack: list[ast.AST] = [*call.args, *(k.value for k in call.keywords)]
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            for part in ast.walk(node):
                if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute):
                    if part.func.attr in ("parameters", "named_parameters"):
                        owners.append(part.func.value)
                elif isinstance(part, ast.Name) and (found := module.scope_of(part).lookup(part.id)):
                    scope, bindings = found
                    stack += [b.value for b in reaching(module, scope, bindings, part) if b.value is not None]
        return owners

    def held(self, module: Module, node: ast.expr) -> _HeldSet:
        """Everything an expression can hold."""
        if node in self._memo:
            return self._memo[node]
        if node in self._active or len(self._active) > 60:
            return frozenset()
        self._active.add(node)
        try:
            result = self._held(module, node)
        finally:
            self._active.discard(node)
        if not self._active or result:
            self._memo[node] = result
        return result

    def _held(self, module: Module, node: ast.expr) -> _HeldSet:
        match node:
            case ast.Name():
                return self._name(module, node)
            case ast.Call():
                return self._call(module, node)
            case ast.Attribute():
                return self._attribute(module, node)
            case ast.IfExp():
                return self.held(module, node.body) | self.held(module, node.orelse)
            case ast.BoolOp():
                return frozenset().union(*(self.held(module, v) for v in node.values))
            case ast.NamedExpr() | ast.Await() | ast.Starred():
                return self.held(module, node.value)
            case ast.Subscript():
                return self._subscript(module, node)
            case ast.Constant():
                # `model = None` before a branch says nothing about the branch.
                return frozenset() if node.value is None else frozenset({OTHER})
        return frozenset({OTHER})

    def _name(self, module: Module, node: ast.Name) -> _HeldSet:
        if node.id in ("self", "cls"):
            owner = module.class_of(node)
            if owner is not None:
                return frozenset({_Instance(owner, module)})
        found = module.scope_of(node).lookup(node.id)
        if found is None:
            return frozenset({OTHER})
        scope, bindings = found
        held: set[_Held] = set()
        for binding in reaching(module, scope, bindings, node):
            held |= self._binding(module, binding)
        return frozenset(held)

    def _binding(self, module: Module, binding: Binding) -> _HeldSet:
        match binding.kind:
            case BindingKind.ASSIGN | BindingKind.CONTEXT if binding.value is not None:
                if isinstance(binding.node, ast.AnnAssign) and self._annotated(
                    module, binding.node.annotation
                ):
                    return frozenset({DECLARED}) | self._unpacked(module, binding.value, binding.unpack)
                return self._unpacked(module, binding.value, binding.unpack)
            case BindingKind.LOOP if binding.value is not None:
                return self._element(module, binding.value)
            case BindingKind.PARAMETER:
                return self._parameter(module, binding)
            case BindingKind.IMPORT:
                return self._imported(module, binding)
        return frozenset({OTHER})

    def _unpacked(self, module: Module, node: ast.expr, path: tuple[int, ...]) -> _HeldSet:
        if not path:
            return self.held(module, node)
        if isinstance(node, ast.Tuple | ast.List):
            return (
                self._unpacked(module, node.elts[path[0]], path[1:])
                if path[0] < len(node.elts)
                else frozenset()
            )
        if isinstance(node, ast.IfExp):
            return self._unpacked(module, node.body, path) | self._unpacked(module, node.orelse, path)
        if isinstance(node, ast.Call):
            function = self._function(module, node.func)
            if function is not None and node not in self._active:
                self._active.add(node)
                try:
                    home, definition = function
                    parts = [self._unpacked(home, r, path) for r in returns_of(home, definition)]
                finally:
                    self._active.discard(node)
                return frozenset().union(*parts)
        if isinstance(node, ast.Name) and (found := module.scope_of(node).lookup(node.id)):
            scope, bindings = found
            live = reaching(module, scope, bindings, node)
            parts = [self._unpacked(module, b.value, (*b.unpack, *path)) for b in live if b.value is not None]
            if parts and node not in self._active:
                return frozenset().union(*parts)
        return frozenset({OTHER})

    def _element(self, module: Module, node: ast.expr) -> _HeldSet:
        """What the elements of a list, tuple or dict can hold."""
        match node:
            case ast.Tuple() | ast.List() | ast.Set():
                return frozenset().union(*(self.held(module, e) for e in node.elts))
            case ast.Dict():
                return frozenset().union(*(self.held(module, v) for v in node.values))
            case ast.Call() if isinstance(node.func, ast.Attribute) and node.func.attr in ("values", "items"):
                return self._element(module, node.func.value)
            case ast.Name() if node not in self._active:
                found = module.scope_of(node).lookup(node.id)
                self._active.add(node)
                try:
                    values = reaching(module, *found, node) if found else []
                    parts = [
                        self._element(module, b.value) for b in values if b.value is not None and not b.unpack
                    ]
                finally:
                    self._active.discard(node)
                return frozenset().union(*parts)
        return frozenset({OTHER})

    def _subscript(self, module: Module, node: ast.Subscript) -> _HeldSet:
        container: ast.expr = node.value
        if isinstance(container, ast.Name) and (found := module.scope_of(container).lookup(container.id)):
            for binding in reaching(module, *found, container):
                if isinstance(binding.value, ast.Dict) and isinstance(node.slice, ast.Constant):
                    for key, value in zip(binding.value.keys, binding.value.values, strict=True):
                        if isinstance(key, ast.Constant) and key.value == node.slice.value:
                            return self.held(module, value)
        stores = self._subscript_stores(module, node)
        return stores or self._element(module, container)

    def _subscript_stores(self, module: Module, node: ast.Subscript) -> _HeldSet:
        """`models["policy"] = FSDP(...)` seen from `models["policy"]` of the same scope."""
        text, held = ast.unparse(node), set[_Held]()
        scope = module.scope_of(node)
        for other in module.nodes(ast.Subscript):
            assert isinstance(other, ast.Subscript)
            if (
                isinstance(other.ctx, ast.Store)
                and module.scope_of(other) is scope
                and ast.unparse(other) == text
            ):
                statement = module.parent(other)
                if isinstance(statement, ast.Assign):
                    held |= self.held(module, statement.value)
        return frozenset(held)

    def _parameter(self, module: Module, binding: Binding) -> _HeldSet:
        parameter = binding.node
        assert isinstance(parameter, ast.arg)
        held: set[_Held] = set()
        if parameter.annotation is not None and self._annotated(module, parameter.annotation):
            held.add(DECLARED)
        function = self._owner(module, parameter)
        if function is None:
            return frozenset(held | {OTHER})
        calls = self.calls_of(module, function)
        for caller, call in calls:
            bound = is_bound_call(module, function, call)
            argument = argument_for(function, parameter.arg, call, bound=bound)
            if isinstance(argument, ast.expr):
                held |= self.held(caller, argument)
            elif argument is None:
                held.add(OTHER)
        return frozenset(held) if calls else frozenset(held | {OTHER})

    def _owner(self, module: Module, parameter: ast.arg) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        arguments = module.parent(parameter)
        function = module.parent(arguments) if arguments is not None else None
        return function if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) else None

    def calls_of(
        self, module: Module, function: ast.FunctionDef | ast.AsyncFunctionDef
    ) -> list[tuple[Module, ast.Call]]:
        owner = module.parent(function)
        calls = list(self.callers.get(function, []))
        if isinstance(owner, ast.ClassDef):
            if function.name == "__init__":
                calls += self.callers.get(owner, [])
            calls += self._method_calls(module, owner, function.name)
        return calls

    def _method_calls(self, module: Module, owner: ast.ClassDef, name: str) -> list[tuple[Module, ast.Call]]:
        if self._methods is None:
            self._methods = {}
            for other in self.modules.values():
                for call in other.calls():
                    if isinstance(call.func, ast.Attribute):
                        self._methods.setdefault(call.func.attr, []).append((other, call, call.func))
        found = []
        for other, call, function in self._methods.get(name, []):
            if function not in self._active:
                receivers = self.held(other, function.value)
                if any(isinstance(h, _Instance) and self._is_a(h, owner) for h in receivers):
                    found.append((other, call))
        return found

    def _is_a(self, instance: _Instance, owner: ast.ClassDef) -> bool:
        return any(node is owner for node, _ in self._lineage(instance.node, instance.module))

    def _lineage(self, node: ast.ClassDef, module: Module) -> list[tuple[ast.ClassDef, Module]]:
        """A class and its bases in the project."""
        found: list[tuple[ast.ClassDef, Module]] = []
        stack = [(node, module)]
        while stack:
            current, home = stack.pop()
            if any(current is seen for seen, _ in found):
                continue
            found.append((current, home))
            for base in current.bases:
                symbol = self.index.resolve(home, base)
                if symbol and symbol.module is not None and isinstance(symbol.node, ast.ClassDef):
                    stack.append((symbol.node, symbol.module))
        return found

    def _imported(self, module: Module, binding: Binding) -> _HeldSet:
        """A module-level variable of another module."""
        head, _, last = binding.target.rpartition(".")
        holder = self.index.find(head or ".", module.path) if head else None
        if holder is None or holder is module:
            return frozenset({OTHER})
        bindings = holder.scope.bindings.get(last, [])
        return frozenset().union(
            *(self._binding(holder, b) for b in bindings if b.kind is BindingKind.ASSIGN)
        )

    def _call(self, module: Module, node: ast.Call) -> _HeldSet:
        if node in self.wraps and self.wraps[node].kind != "partial":
            return frozenset({self.wraps[node]})
        made_by = self._partial(module, node.func)
        if made_by is not None:
            return frozenset({made_by})
        if isinstance(node.func, ast.Attribute) and node.func.attr in PASS_THROUGH:
            return self.held(module, node.func.value)
        symbol = self.index.resolve(module, node.func)
        if symbol is not None and symbol.name in _PASS_THROUGH_CALLS and node.args:
            return self.held(module, node.args[-1 if symbol.name == "typing.cast" else 0])
        if _is_optimizer(symbol, node):
            return frozenset({_Optimizer(node, module)})
        if symbol is not None and isinstance(symbol.node, ast.ClassDef) and symbol.module is not None:
            return frozenset({_Instance(symbol.node, symbol.module)})
        function = self._function(module, node.func)
        if function is None:
            return frozenset({OTHER})
        home, definition = function
        returned = [self.held(home, r) for r in returns_of(home, definition)]
        declared = definition.returns is not None and self._annotated(home, definition.returns)
        held = frozenset().union(*returned)
        return held | {DECLARED} if declared else held

    def _partial(self, module: Module, function: ast.expr) -> WrapCall | None:
        """The `functools.partial(FSDP, ...)` that a called name holds."""
        found = module.scope_of(function).lookup(function.id) if isinstance(function, ast.Name) else None
        for binding in reaching(module, *found, function) if found else ():
            site = self.wraps.get(binding.value) if isinstance(binding.value, ast.Call) else None
            if site is not None and site.kind == "partial":
                return site
        return None

    def _function(
        self, module: Module, node: ast.expr
    ) -> tuple[Module, ast.FunctionDef | ast.AsyncFunctionDef] | None:
        symbol = self.index.resolve(module, node)
        if symbol is not None and isinstance(symbol.node, ast.FunctionDef | ast.AsyncFunctionDef):
            return (symbol.module, symbol.node) if symbol.module else None
        if isinstance(node, ast.Attribute):
            for holder in self.held(module, node.value):
                if isinstance(holder, _Instance):
                    for owner, home in self._lineage(holder.node, holder.module):
                        for statement in owner.body:
                            if isinstance(statement, ast.FunctionDef) and statement.name == node.attr:
                                return home, statement
        return None

    def _attribute(self, module: Module, node: ast.Attribute) -> _HeldSet:
        local = self._same_chain(module, node)
        if local is not None:
            return local
        owners = [h for h in self.held(module, node.value) if isinstance(h, _Instance)]
        held: set[_Held] = set()
        for owner in owners:
            for definition, home in self._lineage(owner.node, owner.module):
                held |= self._attribute_of(definition, home, node.attr)
        return frozenset(held) or frozenset({OTHER})

    def _attribute_of(self, owner: ast.ClassDef, home: Module, name: str) -> _HeldSet:
        """What `self.<name>` can hold: every assignment in the class's methods and through its instances."""
        assigned: list[_HeldSet] = []
        wrapped_in_place = False
        for module, target, value, unpack in self._stores().get(name, []):
            direct = isinstance(target.value, ast.Name) and target.value.id == "self"
            if direct and not (module is home and module.class_of(target) is owner):
                continue
            if not direct and not self._reaches(module, target.value, owner):
                continue
            assigned.append(self._unpacked(module, value, unpack))
            wrapped_in_place |= self._wraps_itself(module, target, value)
        for statement in owner.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                if statement.target.id == name:
                    assigned.append(self._field(home, owner, statement, name))
        held = frozenset().union(*assigned)
        return held - {OTHER} if wrapped_in_place else held

    def _field(self, home: Module, owner: ast.ClassDef, statement: ast.AnnAssign, name: str) -> _HeldSet:
        """A dataclass field: what its constructor calls give it."""
        held: set[_Held] = {DECLARED} if self._annotated(home, statement.annotation) else set()
        fields = [
            s.target.id for s in owner.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)
        ]
        for module, call in self.callers.get(owner, []):
            given = next((k.value for k in call.keywords if k.arg == name), None)
            position = fields.index(name)
            if given is None and position < len(call.args):
                given = call.args[position]
            if given is not None:
                held |= self.held(module, given)
        return frozenset(held)

    def _reaches(self, module: Module, holder: ast.expr, owner: ast.ClassDef) -> bool:
        if holder in self._active:
            return False
        held = self.held(module, holder)
        return any(isinstance(h, _Instance) and self._is_a(h, owner) for h in held)

    def _wraps_itself(self, module: Module, target: ast.Attribute, value: ast.expr) -> bool:
        """`self.model = FSDP(self.model)`, not in a branch: what was there before is gone."""
        site = self.wraps.get(value) if isinstance(value, ast.Call) else None
        if site is None or site.wrapped is None or ast.unparse(site.wrapped) != ast.unparse(target):
            return False
        function = module.function(target)
        return module.parent(module.statement(target)) is function

    def _same_chain(self, module: Module, node: ast.Attribute) -> _HeldSet | None:
        """What the same attribute chain was assigned earlier in the same function, as if it were a variable."""
        scope, text = module.scope_of(node), ast.unparse(node)
        bindings = []
        for home, target, value, unpack in self._stores().get(node.attr, []):
            if home is module and module.scope_of(target) is scope and ast.unparse(target) == text:
                bindings.append(Binding(text, BindingKind.ASSIGN, module.statement(target), value, unpack))
        start = Binding(text, BindingKind.PARAMETER, node)
        live = reaching(module, scope, [start, *bindings], node) if bindings else []
        if not live or start in live:
            return None
        return frozenset().union(
            *(self._unpacked(module, b.value, b.unpack) for b in live if b.value is not None)
        )

    def _stores(self) -> dict[str, list[tuple[Module, ast.Attribute, ast.expr, tuple[int, ...]]]]:
        """Every assignment to an attribute, by the attribute's name."""
        if self._attributes is None:
            self._attributes = {}
            for module in list(self.modules.values()):
                for kind in (ast.Assign, ast.AnnAssign):
                    for node in module.nodes(kind):
                        targets = node.targets if isinstance(node, ast.Assign) else [node.target]  # type: ignore[attr-defined]
                        value = node.value  # type: ignore[attr-defined]
                        if value is None:
                            continue
                        for target in targets:
                            for attribute, unpack in _attribute_targets(target):
                                stores = self._attributes.setdefault(attribute.attr, [])
                                stores.append((module, attribute, value, unpack))
        return self._attributes

    def _annotated(self, module: Module, annotation: ast.expr) -> bool:
        """Whether an annotation is FSDP1's class and nothing else (a union says only maybe)."""
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            try:
                annotation = ast.parse(annotation.value, mode="eval").body
            except SyntaxError:
                return False
            if isinstance(annotation, ast.Name):
                symbol = self.index.lookup(module, module.scope, annotation.id)
                return symbol is not None and symbol.name == FSDP
            return False
        symbol = self.index.resolve(module, annotation)
        return symbol is not None and symbol.name == FSDP

    def _is_evident(self, module: Module, node: ast.expr) -> bool:
        """Whether one of FSDP1's static methods is called on the same name in the same function."""
        if not isinstance(node, ast.Name | ast.Attribute):
            return False
        if self._evidence is None:
            self._evidence = {}
            for home in list(self.modules.values()):
                for call in home.calls():
                    subject = self._subject(home, call)
                    if subject is not None:
                        key = (home.path, home.scope_of(call).node, ast.unparse(subject))
                        self._evidence[key] = True
        return (module.path, module.scope_of(node).node, ast.unparse(node)) in self._evidence

    def _subject(self, module: Module, call: ast.Call) -> ast.expr | None:
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in _STATIC:
            return None
        symbol = self.index.resolve(module, call.func.value)
        if symbol is None or symbol.name != FSDP:
            return None
        for keyword in call.keywords:
            if keyword.arg in ("model", "module"):
                return keyword.value
        return call.args[0] if call.args and isinstance(call.args[0], ast.Name | ast.Attribute) else None


def _attribute_targets(
    target: ast.expr, unpack: tuple[int, ...] = ()
) -> Iterable[tuple[ast.Attribute, tuple[int, ...]]]:
    if isinstance(target, ast.Attribute):
        yield target, unpack
    elif isinstance(target, ast.Tuple | ast.List):
        for position, element in enumerate(target.elts):
            yield from _attribute_targets(element, (*unpack, position))


def _is_optimizer(symbol: Symbol | None, call: ast.Call) -> bool:
    """A class of `torch.optim`, or a name that ends like an optimizer and is given parameters."""
    if symbol is not None and symbol.name.startswith("torch.optim.") and "lr_scheduler" not in symbol.name:
        return True
    names = [n.attr for n in ast.walk(call.func) if isinstance(n, ast.Attribute)]
    names += [n.id for n in ast.walk(call.func) if isinstance(n, ast.Name)]
    gives = any(
        isinstance(n, ast.Attribute) and n.attr in ("parameters", "named_parameters")
        for a in (*call.args, *(k.value for k in call.keywords))
        for n in ast.walk(a)
    )
    return gives and any(
        n.lower().startswith(("optim", "adam", "sgd", "lion")) or n.lower().endswith(("optimizer", "adamw"))
        for n in names
    )
