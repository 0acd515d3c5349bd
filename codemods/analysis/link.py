"""Which expressions hold a sharded model, or an optimizer of one, anywhere in the project.

A question is answered on demand: the expression is followed backwards through assignments, attributes,
parameters (to every call), return values, containers and pass-through methods, until it reaches a wrap call
or something that is none.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from codemods.analysis.arguments import argument_for, is_bound_call, returns_of
from codemods.analysis.attributes import Attributes
from codemods.analysis.containers import Containers
from codemods.analysis.evidence import Evidence, is_optimizer
from codemods.analysis.flow import reaching
from codemods.analysis.holding import (
    DECLARED,
    OTHER,
    Declared,
    Held,
    HeldSet,
    Holding,
    Instance,
    Maybe,
    No,
    OptimizerCall,
    Other,
    Sharded,
    WrapCall,
)
from codemods.analysis.index import Index
from codemods.analysis.module import Module
from codemods.analysis.scopes import Binding, BindingKind

PASS_THROUGH = frozenset(
    {"to", "cuda", "cpu", "half", "float", "bfloat16", "train", "eval", "requires_grad_", "double"}
)
"""Methods of `nn.Module` that give the module back."""

_PASS_THROUGH_CALLS = frozenset({"torch.compile", "typing.cast", "copy.copy"})


@dataclass(slots=True)
class Links:
    """Answers what expressions hold.

    Attributes:
        modules: every module read.
        callers: function or class definition -> its calls.
        wraps: the call nodes that are wrap calls.
        active: expressions being followed, so that circles end.
    """

    index: Index
    modules: dict[str, Module]
    callers: dict[ast.AST, list[tuple[Module, ast.Call]]]
    wraps: dict[ast.Call, WrapCall]
    _memo: dict[ast.expr, HeldSet] = field(default_factory=dict)
    active: set[ast.AST] = field(default_factory=set)
    _methods: dict[str, list[tuple[Module, ast.Call, ast.Attribute]]] | None = None
    evidence: Evidence = field(init=False)
    attributes: Attributes = field(init=False)
    containers: Containers = field(init=False)

    def __post_init__(self) -> None:
        self.evidence = Evidence(self.index, self.modules)
        self.attributes = Attributes(self)
        self.containers = Containers(self)

    def sharded(self, module: Module, node: ast.expr) -> Holding:
        """Whether an expression holds a sharded model where it stands."""
        held = self.held(module, node)
        sites = frozenset(h for h in held if isinstance(h, WrapCall))
        declared = any(isinstance(h, Declared) for h in held) or self.evidence.is_evident(module, node)
        declared = declared or self.evidence.is_tested(module, node)
        if not sites and not declared:
            return No()
        if declared or not any(isinstance(h, Other | Instance) for h in held):
            return Sharded(sites)
        return Maybe(sites)

    def optimizers(self, module: Module, node: ast.expr) -> list[tuple[Module, ast.Call]]:
        """The constructor calls of the optimizers an expression can hold."""
        return [(h.module, h.node) for h in self.held(module, node) if isinstance(h, OptimizerCall)]

    def builds_optimizer(self, module: Module, call: ast.Call) -> bool:
        """Whether a call constructs an optimizer."""
        return is_optimizer(self.index.resolve(module, call.func), call)

    def optimizer_of(self, module: Module, node: ast.expr) -> Holding:
        """Whether an expression holds the optimizer of a sharded model."""
        sites: set[WrapCall] = set()
        certain = True
        for home, call in self.optimizers(module, node):
            for owner in self.parameter_owners(home, call):
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
        """`m` of every `m.parameters()` or `m.named_parameters()` an optimizer is given, through names."""
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

    def held(self, module: Module, node: ast.expr) -> HeldSet:
        """Everything an expression can hold."""
        if node in self._memo:
            return self._memo[node]
        if node in self.active or len(self.active) > 60:
            return frozenset()
        self.active.add(node)
        try:
            result = self._held(module, node)
        finally:
            self.active.discard(node)
        if not self.active or result:
            self._memo[node] = result
        return result

    def _held(self, module: Module, node: ast.expr) -> HeldSet:
        match node:
            case ast.Name():
                return self._name(module, node)
            case ast.Call():
                return self._call(module, node)
            case ast.Attribute():
                return self.attributes.attribute(module, node)
            case ast.IfExp():
                return self.held(module, node.body) | self.held(module, node.orelse)
            case ast.BoolOp():
                return frozenset().union(*(self.held(module, v) for v in node.values))
            case ast.NamedExpr() | ast.Await() | ast.Starred():
                return self.held(module, node.value)
            case ast.Subscript():
                return self.containers.subscript(module, node)
            case ast.Constant():
                # `model = None` before a branch says nothing about the branch.
                return frozenset() if node.value is None else frozenset({OTHER})
        return frozenset({OTHER})

    def _name(self, module: Module, node: ast.Name) -> HeldSet:
        if node.id in ("self", "cls"):
            owner = module.class_of(node)
            if owner is not None:
                return frozenset({Instance(owner, module)})
        found = module.scope_of(node).lookup(node.id)
        if found is None:
            return frozenset({OTHER})
        scope, bindings = found
        held: set[Held] = set()
        live = reaching(module, scope, bindings, node)
        for binding in live:
            held |= self._binding(module, binding)
        return frozenset(held) if live else frozenset({OTHER})

    def _binding(self, module: Module, binding: Binding) -> HeldSet:
        match binding.kind:
            case BindingKind.ASSIGN | BindingKind.CONTEXT if binding.value is not None:
                held = self.containers.unpacked(module, binding.value, binding.unpack)
                statement = binding.node
                if isinstance(statement, ast.AnnAssign) and self.evidence.annotated(
                    module, statement.annotation
                ):
                    # What is known of the value says where it comes from, and other bindings still count.
                    return (held - {OTHER}) or frozenset({DECLARED})
                return held
            case BindingKind.LOOP if binding.value is not None:
                return self.containers.element(module, binding.value)
            case BindingKind.PARAMETER:
                return self._parameter(module, binding)
            case BindingKind.IMPORT:
                return self._imported(module, binding)
        return frozenset({OTHER})

    def _parameter(self, module: Module, binding: Binding) -> HeldSet:
        parameter = binding.node
        assert isinstance(parameter, ast.arg)
        held: set[Held] = set()
        if parameter.annotation is not None and self.evidence.annotated(module, parameter.annotation):
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
            if function not in self.active:
                receivers = self.held(other, function.value)
                if any(isinstance(h, Instance) and self.attributes.is_a(h, owner) for h in receivers):
                    found.append((other, call))
        return found

    def _imported(self, module: Module, binding: Binding) -> HeldSet:
        """A module-level variable of another module."""
        head, _, last = binding.target.rpartition(".")
        holder = self.index.find(head or ".", module.path) if head else None
        if holder is None or holder is module:
            return frozenset({OTHER})
        bindings = holder.scope.bindings.get(last, [])
        return frozenset().union(
            *(self._binding(holder, b) for b in bindings if b.kind is BindingKind.ASSIGN)
        )

    def _call(self, module: Module, node: ast.Call) -> HeldSet:
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
        if is_optimizer(symbol, node):
            return frozenset({OptimizerCall(node, module)})
        if symbol is not None and isinstance(symbol.node, ast.ClassDef) and symbol.module is not None:
            return frozenset({Instance(symbol.node, symbol.module)})
        function = self.function(module, node.func)
        if function is None:
            return frozenset({OTHER})
        home, definition = function
        returned = [self.held(home, r) for r in returns_of(home, definition)]
        declared = definition.returns is not None and self.evidence.annotated(home, definition.returns)
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

    def function(
        self, module: Module, node: ast.expr
    ) -> tuple[Module, ast.FunctionDef | ast.AsyncFunctionDef] | None:
        """The function or method of the project that a callee means, and its module."""
        symbol = self.index.resolve(module, node)
        if symbol is not None and isinstance(symbol.node, ast.FunctionDef | ast.AsyncFunctionDef):
            return (symbol.module, symbol.node) if symbol.module else None
        if isinstance(node, ast.Attribute):
            for holder in self.held(module, node.value):
                if isinstance(holder, Instance):
                    for owner, home in self.attributes.lineage(holder.node, holder.module):
                        for statement in owner.body:
                            if isinstance(statement, ast.FunctionDef) and statement.name == node.attr:
                                return home, statement
        return None
