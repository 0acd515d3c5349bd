"""What a call gives: a wrapped model, an object, what a function returns, or what it is given back."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from codemods.analysis.arguments import given_to
from codemods.analysis.called_classes import optimizers_called
from codemods.analysis.containers import METHODS
from codemods.analysis.evidence import is_optimizer
from codemods.analysis.flow import reaching
from codemods.analysis.frames import PASS_THROUGH, returned
from codemods.analysis.functions import Function
from codemods.analysis.holding import (
    DECLARED,
    NOTHING,
    OTHER,
    UNSEEN,
    Declared,
    Defined,
    Held,
    HeldSet,
    Instance,
    Modules,
    OptimizerCall,
    Path,
    Record,
    WrapCall,
)
from codemods.analysis.index import Symbol
from codemods.analysis.module import Module
from codemods.analysis.scopes import BindingKind
from codemods.torch_names import FSDP

if TYPE_CHECKING:
    from codemods.analysis.link import Links

_PASS_THROUGH_CALLS = frozenset({"torch.compile", "typing.cast", "copy.copy"})
_MODULES = frozenset(f"torch.nn.{name}" for name in ("ModuleDict", "ModuleList", "Sequential"))
PREPARED = frozenset({"prepare", "prepare_model", "setup_module", "setup"})
UNWRAPPED = frozenset({"unwrap_model", "extract_model_from_parallel", "unwrap"})
_MOST_PARTIALS = 5
"""How many functions and partials may lie between a call and the `partial(FSDP, ...)` that it means."""


@dataclass(slots=True)
class Calls:
    """The part of `Links` that is about calls."""

    links: Links
    _has_partials: bool = field(init=False)

    def __post_init__(self) -> None:
        self._has_partials = any(site.kind == "partial" for site in self.links.wraps.values())

    def call(self, module: Module, node: ast.Call, path: Path) -> HeldSet:
        """What is at a path of what a call gives."""
        if node in self.links.wraps and self.links.wraps[node].kind != "partial":
            site = self.links.wraps[node]
            return NOTHING if path else frozenset({site}) | self._beside(site)
        made_by = self._partial(module, node.func)
        if made_by is not None:
            return NOTHING if path else frozenset({made_by})
        symbol = self.links.index.resolve(module, node.func)
        known = self._known(module, node, symbol, path)
        if known is not None:
            return known
        functions = self.links.functions.meant(module, node.func)
        if functions:
            return NOTHING.union(*(self._returned(module, node, home, f, path) for home, f in functions))
        kept = self._handed_through(module, node, path)
        if kept is not None:
            return kept
        if symbol is None:
            made = self._made_by_held(module, node, path)
            return made if made is not None else frozenset({UNSEEN})
        return frozenset({OTHER})

    def _beside(self, site: WrapCall) -> HeldSet:
        """What stands in the place of FSDP1's wrapper where that is not chosen."""
        symbol = self.links.index.resolve(site.module, site.other) if site.other is not None else None
        if symbol is None or symbol.module is None or not isinstance(symbol.node, ast.ClassDef):
            return NOTHING
        return frozenset({self.links.classes.instance(symbol.node, symbol.module)})

    def _known(self, module: Module, node: ast.Call, symbol: Symbol | None, path: Path) -> HeldSet | None:
        """Calls that are told by what they call, before any function of the project is looked for."""
        if isinstance(node.func, ast.Attribute) and node.func.attr in PASS_THROUGH:
            return self.links.at(module, node.func.value, path)
        if symbol is not None and symbol.name in _PASS_THROUGH_CALLS and node.args:
            return self.links.at(module, node.args[-1 if symbol.name == "typing.cast" else 0], path)
        if symbol is not None and symbol.name == "functools.partial" and node.args:
            return self.links.at(module, node.args[0], path)
        if symbol is not None and symbol.name == "dataclasses.replace" and node.args:
            return self.links.at(module, node.args[0], path)
        if symbol is not None and symbol.name == f"{FSDP}.fsdp_modules":
            return frozenset({DECLARED if path else OTHER})
        if symbol is not None and symbol.name in _MODULES and not path:
            return frozenset({Modules(node, module)})
        is_made = is_optimizer(symbol, node) or optimizers_called(self.links, module, node)
        made = frozenset({OptimizerCall(node, module)}) if is_made else NOTHING
        if symbol is not None and symbol.module is not None and isinstance(symbol.node, ast.ClassDef):
            held = self._constructed(module, node, symbol.node, symbol.module, path)
            return held if path else held | made
        if made:
            return NOTHING if path else made
        if symbol is not None and symbol.name in ("types.SimpleNamespace", "argparse.Namespace"):
            return NOTHING if path else frozenset({Record(node, module)})
        match node.func:
            case ast.Name(id="getattr") if len(node.args) >= 2 and isinstance(node.args[1], ast.Constant):
                held = self.links.attributes.named(module, node.args[0], str(node.args[1].value), path)
                return held | (self.links.at(module, node.args[2], path) if len(node.args) == 3 else NOTHING)
            case ast.Name(id="super") if symbol is None:
                return NOTHING
        if symbol is None or symbol.module is None:
            is_method = isinstance(node.func, ast.Attribute) and node.func.attr in METHODS
            if not (is_method and self.links.functions.meant(module, node.func)):
                return self.links.containers.call(module, node, path)
        return None

    def _constructed(
        self, module: Module, node: ast.Call, owner: ast.ClassDef, home: Module, path: Path
    ) -> HeldSet:
        """An object of a class of the project; of a named tuple also its elements."""
        if not path:
            return frozenset({self.links.classes.instance(owner, home)})
        if not self.links.classes.is_named_tuple(owner, home):
            return NOTHING
        fields = self.links.classes.fields(owner, home)
        return self._element(module, node, fields, path)

    def _element(self, module: Module, node: ast.Call, fields: list[str], path: Path) -> HeldSet:
        key, held = path[0], set[Held]()
        for position, name in enumerate(fields):
            if key in (None, position, position - len(fields)):
                for value, inner in given_to(fields, name, node):
                    held |= self.links.at(module, value, (*inner, *path[1:]))
        return frozenset(held)

    def _made_by_held(self, module: Module, node: ast.Call, path: Path) -> HeldSet | None:
        """A call of a class or named tuple that a variable holds: `cls(...)`, `Made(...)`."""
        found: set[Held] = set()
        is_found = False
        for held in self.links.held(module, node.func):
            if isinstance(held, Defined) and isinstance(held.node, ast.ClassDef):
                is_found = True
                found |= self._constructed(module, node, held.node, held.module, path)
        fields = self._named_tuple(module, node.func)
        if fields is not None:
            is_found = True
            made = Record(node, module, tuple(fields))
            found |= self._element(module, node, fields, path) if path else {made}
        return frozenset(found) if is_found else None

    def _named_tuple(self, module: Module, callee: ast.expr) -> list[str] | None:
        """The fields of `collections.namedtuple("Made", ...)` that a name is bound to."""
        found = module.scope_of(callee).lookup(callee.id) if isinstance(callee, ast.Name) else None
        for binding in found[1] if found is not None else ():
            value = binding.value
            if not isinstance(value, ast.Call) or len(value.args) < 2:
                continue
            symbol = self.links.index.resolve(module, value.func)
            if symbol is None or symbol.name != "collections.namedtuple":
                continue
            match value.args[1]:
                case ast.Constant(value=str() as words):
                    return words.replace(",", " ").split()
                case ast.List(elts=names) | ast.Tuple(elts=names):
                    return [str(n.value) for n in names if isinstance(n, ast.Constant)]
        return None

    def _returned(
        self, module: Module, node: ast.Call, home: Module, function: Function, path: Path
    ) -> HeldSet:
        held = returned(self.links, module, node, home, function, path)
        told = None if isinstance(function, ast.Lambda) else function.returns
        if told is None or path:
            return held
        if self.links.evidence.annotated(home, told):
            return held | {DECLARED}
        if not any(isinstance(h, WrapCall | Instance | Declared) for h in held):
            return held | frozenset(self.links.classes.annotated(home, told))
        return held

    def _handed_through(self, module: Module, node: ast.Call, path: Path) -> HeldSet | None:
        """`accelerator.prepare(model, optimizer)`, `accelerator.unwrap_model(model)` and their like."""
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in UNWRAPPED and node.args:
            return self.links.at(module, node.args[0], path)
        if name not in PREPARED or not node.args or not isinstance(node.func, ast.Attribute):
            return None
        if len(node.args) == 1:
            return self.links.at(module, node.args[0], path)
        if not path:
            return NOTHING
        held: set[Held] = set()
        for i, argument in enumerate(node.args):
            if isinstance(argument, ast.Starred):
                held |= self.links.at(module, argument.value, (None, *path[1:]))
            elif path[0] in (None, i, i - len(node.args)):
                held |= self.links.at(module, argument, path[1:])
        return frozenset(held)

    def _partial(self, module: Module, function: ast.expr) -> WrapCall | None:
        """The `functools.partial(FSDP, ...)` that a called name holds, of this module or another."""
        if not self._has_partials:
            return None
        seen: set[ast.expr] = set()
        waiting = [(module, function)]
        for _ in range(_MOST_PARTIALS):
            values = [found for home, called in waiting for found in self._values(home, called)]
            site = next((site for _, value in values if (site := self._partial_at(value)) is not None), None)
            if site is not None:
                return site
            waiting = []
            for home, value in values:
                if isinstance(value, ast.Call) and value not in seen:
                    seen.add(value)
                    waiting += self._makers(home, value)
        return None

    def _values(self, module: Module, function: ast.expr) -> list[tuple[Module, ast.expr | None]]:
        """What a called expression can be: itself where it is a call, else what its name holds."""
        if isinstance(function, ast.Call):
            return [(module, function)]
        values: list[tuple[Module, ast.expr | None]] = []
        if isinstance(function, ast.Name):
            found = module.scope_of(function).lookup(function.id)
            for binding in reaching(module, *found, function) if found else ():
                values.append((module, binding.value))
                if binding.kind is BindingKind.IMPORT:
                    home = self.links.index.holder(module, binding.target)
                    values += _module_values(home, binding.target.rpartition(".")[2])
        elif isinstance(function, ast.Attribute):
            holder = self.links.index.resolve(module, function.value)
            if holder is not None and holder.module is not None and holder.node is holder.module.tree:
                values += _module_values(holder.module, function.attr)
            else:  # `self.shard = partial(FSDP, ...)`
                stored = self.links.stores.attributes(function.attr, [module])
                values += [(s.module, s.value) for s in stored if not s.unpack]
        return values

    def _makers(self, module: Module, node: ast.Call) -> list[tuple[Module, ast.expr]]:
        """What makes the value of a call: the first argument of a `partial`, or what functions return."""
        symbol = self.links.index.resolve(module, node.func)
        if symbol is not None and symbol.name == "functools.partial" and node.args:
            return [(module, node.args[0])]
        functions = self.links.functions.meant(module, node.func)
        return [(home, value) for home, function in functions for value in home.results(function)[0]]

    def _partial_at(self, node: ast.expr | None) -> WrapCall | None:
        site = self.links.wraps.get(node) if isinstance(node, ast.Call) else None
        return site if site is not None and site.kind == "partial" else None

    def entered(self, module: Module, context: ast.expr, path: Path) -> HeldSet:
        """What `with context as name` gives the name."""
        if not isinstance(context, ast.Call):
            return self._by_enter(module, context, path)
        held: set[Held] = set()
        functions = self.links.functions.meant(module, context.func)
        for home, function in functions:
            _, yielded = home.results(function)
            if yielded:
                held |= self.links.functions.returned(home, function, (None, *path))
        if held:
            return frozenset(held)
        return self._by_enter(module, context, path)

    def _by_enter(self, module: Module, context: ast.expr, path: Path) -> HeldSet:
        made = self.links.held(module, context)
        held: set[Held] = set()
        is_entered = False
        for one in made:
            if isinstance(one, Instance):
                for name in ("__enter__", "__aenter__"):
                    for home, method in self.links.classes.methods(one, name):
                        is_entered = True
                        held |= self.links.functions.returned(home, method, path)
        return frozenset(held) if is_entered else self.links.at(module, context, path)


def _module_values(module: Module | None, name: str) -> list[tuple[Module, ast.expr | None]]:
    """What a variable of a module is given."""
    return [(module, b.value) for b in module.scope.bindings.get(name, ())] if module is not None else []
