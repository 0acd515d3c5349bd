"""Classes of the project: bases, heirs, methods, fields."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TypeAlias

from codemods.analysis.holding import Instance
from codemods.analysis.index import Index
from codemods.analysis.module import Module

ClassAt: TypeAlias = "tuple[ast.ClassDef, Module]"
Method: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef"


@dataclass(slots=True)
class Classes:
    """Answers how classes are related.

    Attributes:
        modules: every module read.
    """

    index: Index
    modules: dict[str, Module]
    _lineages: dict[ast.ClassDef, list[ClassAt]] = field(default_factory=dict)
    _methods: dict[ast.ClassDef, dict[str, Method]] = field(default_factory=dict)
    _fields: dict[ast.ClassDef, list[str]] = field(default_factory=dict)
    _heirs: dict[ast.ClassDef, list[ClassAt]] | None = None

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

    def heirs(self, node: ast.ClassDef) -> list[ClassAt]:
        """The classes that derive from a class, at whatever distance."""
        if self._heirs is None:
            self._heirs = {}
            for module in list(self.modules.values()):
                for heir in module.nodes(ast.ClassDef):
                    assert isinstance(heir, ast.ClassDef)
                    for base, _ in self.lineage(heir, module)[1:]:
                        self._heirs.setdefault(base, []).append((heir, module))
        return self._heirs.get(node, [])

    def family(self, instance: Instance) -> list[ClassAt]:
        """The classes whose methods can run on an object."""
        found = list(self.lineage(instance.node, instance.module))
        for heir, module in self.standing_in(instance):
            found += self.lineage(heir, module)
        return list(dict.fromkeys(found))

    def standing_in(self, instance: Instance) -> list[ClassAt]:
        """The heirs that an object can be of."""
        if instance.is_exact:
            return []
        heirs, within = self.heirs(instance.node), instance.within
        if within is None or not heirs:
            return heirs
        return [(heir, module) for heir, module in heirs if self._runs(self.lineage(heir, module), within)]

    def _runs(self, line: list[ClassAt], method: Method) -> bool:
        """Whether the objects of a class run a method of a base: not where it is overridden for good."""
        for node, _ in line:
            own = self._defined(node).get(method.name)
            if own is method:
                return True
            if own is not None and not _calls_super(own, method.name):
                return False
        return True

    def is_a(self, instance: Instance, owner: ast.ClassDef) -> bool:
        """Whether an object has what a class defines."""
        return any(node is owner for node, _ in self.family(instance))

    def methods(self, instance: Instance, name: str) -> list[tuple[Module, Method]]:
        """The methods that `x.<name>` can mean: the nearest one, and those of heirs that may stand in."""
        starts = [(instance.node, instance.module)]
        starts += self.standing_in(instance)
        found: list[tuple[Module, Method]] = []
        for start, module in starts:
            nearest = self._nearest(self.lineage(start, module), name)
            if nearest is not None and nearest not in found:
                found.append(nearest)
        return found

    def inherited(self, owner: ast.ClassDef, module: Module, name: str) -> list[tuple[Module, Method]]:
        """What `super().<name>` can mean in a class: of a mixin also what stands beside it."""
        lineages = [self.lineage(owner, module)]
        lineages += [self.lineage(heir, home) for heir, home in self.heirs(owner)]
        found: list[tuple[Module, Method]] = []
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
                    return [Instance(symbol.node, symbol.module, is_exact=False)]
        return []

    def _in_string(self, module: Module, text: str) -> list[Instance]:
        found = []
        for word in text.replace("Optional[", " ").replace("]", " ").replace("|", " ").split():
            symbol = self.index.lookup(module, module.scope, word) if word.isidentifier() else None
            if symbol is not None and symbol.module and isinstance(symbol.node, ast.ClassDef):
                found.append(Instance(symbol.node, symbol.module, is_exact=False))
        return found


def _calls_super(method: Method, name: str) -> bool:
    """Whether a method calls the one it overrides."""
    return any(
        isinstance(node, ast.Attribute)
        and node.attr == name
        and isinstance(node.value, ast.Call | ast.Name)
        and not (isinstance(node.value, ast.Name) and node.value.id == "self")
        for node in ast.walk(method)
    )
