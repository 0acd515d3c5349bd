"""What stands at a path of a tuple, list, dict or comprehension, and of what is made from them."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from codemods.analysis.holding import (
    NOTHING,
    OTHER,
    Held,
    HeldSet,
    Instance,
    Part,
    Path,
    WrapCall,
    can_be,
    key_of,
)
from codemods.analysis.holding import Declared as DeclaredType
from codemods.analysis.holding import Other as OtherType
from codemods.analysis.module import Module
from codemods.analysis.said import is_evident

if TYPE_CHECKING:
    from codemods.analysis.link import Links

_SAME = frozenset({"list", "tuple", "OrderedDict", "ModuleList", "Sequential", "deque", "MappingProxyType"})
_SOME_ORDER = frozenset(
    {"sorted", "reversed", "iter", "set", "frozenset", "filter", "tqdm", "cycle", "chain"}
)
KEEPING = _SAME | _SOME_ORDER | {"ModuleDict"}
"""What makes a container with the elements of another."""
METHODS = frozenset({"get", "pop", "setdefault", "values", "items", "keys", "popitem", "popleft", "copy"})
"""Methods of containers that classes of a project have too."""


@dataclass(slots=True)
class Containers:
    """The part of `Links` that is about elements."""

    links: Links

    def display(self, module: Module, node: ast.expr, path: Path) -> HeldSet:
        """What a written out container, or an operation on containers, has at a path."""
        match node:
            case ast.Subscript():
                return self._subscript(module, node, path)
            case ast.Starred():
                return self.links.at(module, node.value, path)
        if not path:
            return frozenset({OTHER})
        match node:
            case ast.Tuple() | ast.List() | ast.Set():
                return self._elements(module, node.elts, path)
            case ast.Dict():
                return self._values(module, node, path)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
                return self.links.at(module, node.elt, path[1:])
            case ast.DictComp():
                return self.links.at(module, node.value, path[1:])
            case ast.BinOp(op=ast.Add() | ast.BitOr() | ast.Mult()):
                inner = path if isinstance(path[0], str) else (None, *path[1:])
                return self.links.at(module, node.left, inner) | self.links.at(module, node.right, inner)
        return frozenset({OTHER})

    def _subscript(self, module: Module, node: ast.Subscript, path: Path) -> HeldSet:
        if not isinstance(node.slice, ast.Slice):
            held = self.links.at(module, node.value, (key_of(node.slice), *path))
            return held - self._put_there_later(module, node, path) if held else held
        return self.links.at(module, node.value, (None, *path[1:])) if path else NOTHING

    def _put_there_later(self, module: Module, node: ast.Subscript, path: Path) -> HeldSet:
        """The wraps that a loop puts into an item only behind the place where it is read, once for each key:
        `for k in nets: nets[k].load_state_dict(...); nets[k] = FSDP(nets[k])`."""
        if not isinstance(node.slice, ast.Name) or not isinstance(node.ctx, ast.Load):
            return NOTHING
        text, found = ast.unparse(node), set[Held]()
        for loop in (p for p in module.ancestors(node) if isinstance(p, ast.For)):
            if node.slice.id in {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}:
                stores = [s for s in loop.body if isinstance(s, ast.Assign) and len(s.targets) == 1]
                for store in (s for s in stores if ast.unparse(s.targets[0]) == text):
                    if module.span(node).start < module.span(store).end:
                        found |= self.links.at(module, store.value, path)
        return frozenset(one for one in found if isinstance(one, WrapCall))

    def _elements(self, module: Module, elements: list[ast.expr], path: Path) -> HeldSet:
        held: set[Held] = set()
        key, rest = path[0], path[1:]
        stars = [i for i, element in enumerate(elements) if isinstance(element, ast.Starred)]
        for i, element in enumerate(elements):
            if isinstance(element, ast.Starred):
                held |= self.links.at(module, element.value, (None, *rest))
            elif key is None or key in (i, i - len(elements)) or stars:
                held |= self.links.at(module, element, rest)
        return frozenset(held)

    def _values(self, module: Module, node: ast.Dict, path: Path) -> HeldSet:
        held: set[Held] = set()
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                held |= self.links.at(module, value, path)
            elif can_be(key_of(key), path[0]):
                held |= self.links.at(module, value, path[1:])
        return frozenset(held)

    def call(self, module: Module, node: ast.Call, path: Path) -> HeldSet | None:
        """What a call of a container's method, or of a function that makes one, has at a path; None if it is
        neither."""
        if isinstance(node.func, ast.Attribute):
            found = self._by_method(module, node, node.func, path)
            if found is not None:
                return found
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name == "next" and node.args:
            return self.links.at(module, node.args[0], (None, *path))
        if name == "dict" and isinstance(node.func, ast.Name):
            return self._called_dict(module, node, path) if path else NOTHING
        if name == "ModuleDict" and path:
            return self._called_dict(module, node, path)
        if name == "Sequential" and len(node.args) > 1 and path:
            return self._elements(module, node.args, path)
        if name in _SAME | _SOME_ORDER | {"enumerate", "zip"} and not path:
            return NOTHING if isinstance(node.func, ast.Name) else None
        return self._iterated(module, name, node.args, path) if path else None

    def _iterated(self, module: Module, name: str, arguments: list[ast.expr], path: Path) -> HeldSet | None:
        rest = path[1:]
        if name in _SAME and arguments:
            return self.links.at(module, arguments[0], path)
        if name in _SOME_ORDER:
            used = arguments[1:] if name == "filter" else arguments
            return NOTHING.union(*(self.links.at(module, a, (None, *rest)) for a in used))
        if name == "enumerate" and arguments:
            if not rest or not can_be(rest[0], 1):
                return NOTHING
            return self.links.at(module, arguments[0], (None, *rest[1:]))
        if name == "zip":
            if not rest:
                return NOTHING
            chosen = [a for i, a in enumerate(arguments) if rest[0] in (None, i, i - len(arguments))]
            return NOTHING.union(*(self.links.at(module, a, (None, *rest[1:])) for a in chosen))
        return None

    def _called_dict(self, module: Module, node: ast.Call, path: Path) -> HeldSet:
        held: set[Held] = set()
        for argument in node.args:
            held |= self.links.at(module, argument, path)
        for keyword in node.keywords:
            if keyword.arg is None:
                held |= self.links.at(module, keyword.value, path)
            elif path[0] in (None, keyword.arg):
                held |= self.links.at(module, keyword.value, path[1:])
        return frozenset(held)

    def _by_method(self, module: Module, node: ast.Call, method: ast.Attribute, path: Path) -> HeldSet | None:
        owner, arguments = method.value, node.args
        match method.attr:
            case "values" if not arguments:
                return self.links.at(module, owner, (None, *path[1:])) if path else NOTHING
            case "items" if not arguments:
                if len(path) < 2 or not can_be(path[1], 1):
                    return NOTHING
                return self.links.at(module, owner, (None, *path[2:]))
            case "keys" if not arguments:
                return NOTHING
            case "get" | "pop" | "setdefault" if len(arguments) <= 2:
                key = key_of(arguments[0]) if arguments else None
                held = self.links.at(module, owner, (key, *path))
                return held | (self.links.at(module, arguments[1], path) if len(arguments) == 2 else NOTHING)
            case "popitem" | "popleft" if not arguments:
                return self.links.at(module, owner, (None, *path))
            case "copy" if not arguments:
                return self.links.at(module, owner, path)
            case "modules" | "children" if len(path) == 1:
                return self._parts(module, owner)
            case "named_modules" | "named_children" if len(path) == 2 and can_be(path[1], 1):
                return self._parts(module, owner)
        return None

    def _parts(self, module: Module, model: ast.expr) -> HeldSet:
        """The modules inside a model, where it can be a sharded one."""
        found = self.links.held(module, model)
        sites: list[WrapCall | None] = [h for h in found if isinstance(h, WrapCall)]
        if any(isinstance(h, DeclaredType) for h in found) or is_evident(self.links, module, model):
            sites.append(None)
        is_certain = not any(isinstance(h, OtherType | Instance) for h in found)
        parts: set[Held] = {Part(site) for site in sites}
        return frozenset(parts if is_certain or not parts else parts | {OTHER})
