"""Classes of the project: bases, heirs, methods, fields."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TypeAlias

from codemods.analysis.callers import Callers
from codemods.analysis.holding import HeldSet, Instance, in_order
from codemods.analysis.index import Index
from codemods.analysis.module import Module
from codemods.torch_names import is_torch_optimizer

ClassAt: TypeAlias = "tuple[ast.ClassDef, Module]"
Method: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef"


@dataclass(slots=True)
class Classes:
    """Answers how classes are related."""

    index: Index
    callers: Callers
    _lineages: dict[ast.ClassDef, list[ClassAt]] = field(default_factory=dict)
    _methods: dict[ast.ClassDef, dict[str, Method]] = field(default_factory=dict)
    _fields: dict[ast.ClassDef, list[str]] = field(default_factory=dict)
    _heirs: dict[ast.ClassDef, list[ClassAt]] = field(default_factory=dict)
    _children: dict[ast.ClassDef, list[ClassAt]] = field(default_factory=dict)
    _super: dict[Method, bool] = field(default_factory=dict)
    _methods_of: dict[tuple[HeldSet, str], dict[tuple[Module, Method], None]] = field(default_factory=dict)
    _standing: dict[Instance, list[ClassAt]] = field(default_factory=dict)
    _objects: dict[tuple[object, ...], Instance] = field(default_factory=dict)
    _families: dict[Instance, list[ClassAt]] = field(default_factory=dict)
    _family_nodes: dict[Instance, frozenset[ast.ClassDef]] = field(default_factory=dict)
    _inherited: dict[tuple[ast.ClassDef, str], list[tuple[Module, Method]]] = field(default_factory=dict)
    _outside: dict[ast.ClassDef, list[str]] = field(default_factory=dict)

    def instance(
        self, node: ast.ClassDef, module: Module, *, is_exact: bool = True, within: Method | None = None
    ) -> Instance:
        """The objects of a class, always the same one: sets of thousands are compared by identity then."""
        key = node, is_exact, within
        known = self._objects.get(key)
        if known is None:
            known = self._objects[key] = Instance(node, module, is_exact, within)
        return known

    def lineage(self, node: ast.ClassDef, module: Module) -> list[ClassAt]:
        """A class and its bases in the project, the nearest first."""
        known = self._lineages.get(node)
        if known is not None:
            return known
        found: list[ClassAt] = []
        waiting = [(node, module)]
        while waiting:
            current, home = waiting.pop(0)
            if any(current is seen for seen, _ in found):
                continue
            found.append((current, home))
            for base in current.bases:
                symbol = self.index.resolve(home, base)
                if symbol and symbol.module is not None and isinstance(symbol.node, ast.ClassDef):
                    waiting.append((symbol.node, symbol.module))
        self._lineages[node] = found
        return found

    def heirs(self, node: ast.ClassDef, module: Module) -> list[ClassAt]:
        """The classes that derive from a class, at whatever distance, in the order of files and lines."""
        known = self._heirs.get(node)
        if known is None:
            found: dict[ast.ClassDef, Module] = {}
            waiting = [(node, module)]
            while waiting:
                for heir, home in self._derived(*waiting.pop()):
                    if heir not in found and heir is not node:
                        found[heir] = home
                        waiting.append((heir, home))
            known = sorted(found.items(), key=lambda one: (one[1].path, one[0].lineno))
            self._heirs[node] = known
        return known

    def _derived(self, node: ast.ClassDef, module: Module) -> list[ClassAt]:
        """The classes that name a class among their bases."""
        if node not in self._children:
            self._children[node] = [
                (heir, home)
                for home in self.callers.naming_as_base(module, node)
                for heir in home.nodes(ast.ClassDef)
                if isinstance(heir, ast.ClassDef) and self._has_base(heir, home, node)
            ]
        return self._children[node]

    def _has_base(self, heir: ast.ClassDef, home: Module, node: ast.ClassDef) -> bool:
        symbols = (self.index.resolve(home, base) for base in heir.bases)
        return any(symbol is not None and symbol.node is node for symbol in symbols)

    def family(self, instance: Instance) -> list[ClassAt]:
        """The classes whose methods can run on an object."""
        known = self._families.get(instance)
        if known is None:
            found = list(self.lineage(instance.node, instance.module))
            for heir, module in self.standing_in(instance):
                found += self.lineage(heir, module)
            known = self._families[instance] = list(dict.fromkeys(found))
        return known

    def standing_in(self, instance: Instance) -> list[ClassAt]:
        """The heirs that an object can be of."""
        if instance.is_exact:
            return []
        known = self._standing.get(instance)
        if known is None:
            known, within = self.heirs(instance.node, instance.module), instance.within
            if within is not None:
                known = [(h, m) for h, m in known if self._runs(self.lineage(h, m), within)]
            self._standing[instance] = known
        return known

    def _runs(self, line: list[ClassAt], method: Method) -> bool:
        """Whether the objects of a class run a method of a base: not where it is overridden for good."""
        for node, _ in line:
            own = self._defined(node).get(method.name)
            if own is method:
                return True
            if own is not None and not self._calls_super(own):
                return False
        return True

    def _calls_super(self, method: Method) -> bool:
        """Whether a method calls the one it overrides."""
        known = self._super.get(method)
        if known is None:
            known = self._super[method] = _calls_super(method, method.name)
        return known

    def family_nodes(self, instance: Instance) -> frozenset[ast.ClassDef]:
        """The same without their modules."""
        known = self._family_nodes.get(instance)
        if known is None:
            known = self._family_nodes[instance] = frozenset(node for node, _ in self.family(instance))
        return known

    def is_a(self, instance: Instance, owner: ast.ClassDef) -> bool:
        """Whether an object has what a class defines."""
        return owner in self.family_nodes(instance)

    def methods(self, instance: Instance, name: str) -> list[tuple[Module, Method]]:
        """The methods that `x.<name>` can mean: the nearest one, and those of heirs that may stand in."""
        starts = [(instance.node, instance.module), *self.standing_in(instance)]
        found = (self._nearest(self.lineage(start, module), name) for start, module in starts)
        return list(dict.fromkeys(one for one in found if one is not None))

    def methods_of(self, held: HeldSet, name: str) -> dict[tuple[Module, Method], None]:
        """The methods that `x.<name>` can mean, of whatever object."""
        known = self._methods_of.get((held, name))
        if known is None:
            objects = (one for one in in_order(held) if isinstance(one, Instance))
            found = (method for one in objects for method in self.methods(one, name))
            known = self._methods_of[held, name] = dict.fromkeys(found)
        return known

    def inherited(self, owner: ast.ClassDef, module: Module, name: str) -> list[tuple[Module, Method]]:
        """What `super().<name>` can mean in a class: of a mixin also what stands beside it."""
        known = self._inherited.get((owner, name))
        if known is not None:
            return known
        lineages = [self.lineage(owner, module)]
        lineages += [self.lineage(heir, home) for heir, home in self.heirs(owner, module)]
        found: list[tuple[Module, Method]] = self._inherited.setdefault((owner, name), [])
        for line in lineages:
            position = next((i for i, (node, _) in enumerate(line) if node is owner), 0)
            nearest = self._nearest(line[position + 1 :], name)
            if nearest is not None and nearest not in found:
                found.append(nearest)
        return found

    def _nearest(self, line: list[ClassAt], name: str) -> tuple[Module, Method] | None:
        for node, module in line:
            found = self._defined(node).get(name)
            if found is not None:
                return module, found
        return None

    def _defined(self, node: ast.ClassDef) -> dict[str, Method]:
        """The methods in a class's body; of one name the first."""
        if node not in self._methods:
            methods = (s for s in node.body if isinstance(s, ast.FunctionDef | ast.AsyncFunctionDef))
            self._methods[node] = {method.name: method for method in reversed(list(methods))}
        return self._methods[node]

    def fields(self, node: ast.ClassDef, module: Module) -> list[str]:
        """Annotated names of a class in the order of a dataclass's constructor, those of bases first."""
        if node in self._fields:
            return self._fields[node]
        names: dict[str, None] = {}
        for current, _ in reversed(self.lineage(node, module)):
            for statement in current.body:
                if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
                    continue
                if "ClassVar" not in ast.unparse(statement.annotation):
                    names[statement.target.id] = None
        self._fields[node] = list(names)
        return self._fields[node]

    def is_named_tuple(self, node: ast.ClassDef, module: Module) -> bool:
        """Whether a class is a `typing.NamedTuple`."""
        for base in node.bases:
            symbol = self.index.resolve(module, base)
            if symbol is not None and symbol.name == "typing.NamedTuple":
                return True
        return False

    def is_optimizer(self, node: ast.ClassDef, module: Module) -> bool:
        """Whether a class derives from one of `torch.optim`, whatever its name."""
        return any(map(is_torch_optimizer, self.outside_bases(node, module)))

    def is_module(self, node: ast.ClassDef, module: Module) -> bool:
        """Whether a class derives from one of `torch.nn`."""
        return any(name.startswith("torch.nn.") for name in self.outside_bases(node, module))

    def outside_bases(self, node: ast.ClassDef, module: Module) -> list[str]:
        """What a class derives from outside of the project, however indirectly."""
        known = self._outside.get(node)
        if known is None:
            bases = ((home, base) for one, home in self.lineage(node, module) for base in one.bases)
            symbols = (self.index.resolve(home, base) for home, base in bases)
            known = self._outside[node] = [s.name for s in symbols if s is not None and s.module is None]
        return known

    def annotated(self, module: Module, annotation: ast.expr | None) -> list[Instance]:
        """The classes of the project that an annotation names, in unions and strings too."""
        match annotation:
            case ast.Constant(value=str() as text):
                return self._in_string(module, text)
            case ast.BinOp(op=ast.BitOr()):
                return self.annotated(module, annotation.left) + self.annotated(module, annotation.right)
            case ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name)):
                if name == "Optional":
                    return self.annotated(module, annotation.slice)
                if name == "Union" and isinstance(annotation.slice, ast.Tuple):
                    return [one for part in annotation.slice.elts for one in self.annotated(module, part)]
            case ast.Name() | ast.Attribute():
                symbol = self.index.resolve(module, annotation)
                if symbol is not None and symbol.module and isinstance(symbol.node, ast.ClassDef):
                    return [self.instance(symbol.node, symbol.module, is_exact=False)]
        return []

    def _in_string(self, module: Module, text: str) -> list[Instance]:
        found = []
        for word in text.replace("Optional[", " ").replace("]", " ").replace("|", " ").split():
            symbol = self.index.lookup(module, module.scope, word) if word.isidentifier() else None
            if symbol is not None and symbol.module and isinstance(symbol.node, ast.ClassDef):
                found.append(self.instance(symbol.node, symbol.module, is_exact=False))
        return found


def _calls_super(method: Method, name: str) -> bool:
    """Whether it calls the method it overrides: `super().save()`, `Base.save(self)`, not `torch.save()`."""
    called = [n.value for n in ast.walk(method) if isinstance(n, ast.Attribute) and n.attr == name]
    return any(
        (isinstance(value, ast.Call) and ast.unparse(value.func) == "super")
        or (isinstance(value, ast.Name) and value.id.lstrip("_")[:1].isupper())
        for value in called
    )
