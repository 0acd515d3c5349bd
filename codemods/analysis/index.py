"""Modules by name, and what a name means across modules: imports, aliases, star imports, re-exports."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from codemods.analysis.flow import imported_by
from codemods.analysis.module import Module
from codemods.analysis.scopes import Binding, BindingKind, Scope
from codemods.torch_names import canonical, public_names_of

if TYPE_CHECKING:
    from codemods.analysis.shelf import Shelf

_MOST_HANDS = 8
"""Files that hand a name on; circles of them have no end."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """What a name means: a canonical dotted name, and its definition where that is in the project.

    Attributes:
        name: `torch.distributed.fsdp.FullyShardedDataParallel`, or `<path>:<qualified name>` for the
            project's own.
        module: the project's module that defines it, if any.
        node: a `def`, `class`, or the module itself (a tree), if the project defines it.
    """

    name: str
    module: Module | None = None
    node: ast.AST | None = None


class Index:
    """Finds project modules for imported names, parsing them when first needed."""

    def __init__(self, paths: list[str], load: Callable[[str], Module | None]) -> None:
        """
        Args:
            paths: every Python file of the target, forward slashes.
            load: parse a file, or None where that fails (the failure is reported elsewhere).
        """
        self._paths = set(paths)
        self._load = load
        self._by_tail: dict[str, list[str]] = {}
        for path in paths:
            parts = module_parts(path)
            if parts:
                self._by_tail.setdefault(parts[-1], []).append(path)
        self._resolving: set[tuple[Scope, str]] = set()
        self._known: dict[tuple[Scope, str], Symbol | None] = {}
        self._resolved: dict[ast.expr, Symbol | None] = {}
        self._leading_out: dict[tuple[str, str], bool] = {}
        self._located: dict[tuple[str, str], tuple[str, ...]] = {}
        self.may_have: Callable[[str, str], bool] = lambda path, name: True

    def outside(self, module: Module, node: ast.expr, shelf: Shelf) -> Symbol | None:
        """What a name or chain means if that is nothing of the project; no file is read to find out."""
        head = node
        while isinstance(head, ast.Attribute):
            head = head.value
        if not isinstance(head, ast.Name) or self.is_elsewhere(module, head, shelf):
            return None
        symbol = self.resolve(module, node)
        return symbol if symbol is not None and symbol.module is None else None

    def is_elsewhere(self, module: Module, name: ast.Name, shelf: Shelf) -> bool:
        """Whether a name, with the attribute that is taken from it, is of a file that is not read yet."""
        found = module.scope_of(name).lookup(name.id)
        parent = module.parent(name)
        attribute = parent.attr if isinstance(parent, ast.Attribute) else ""
        return found is not None and self.come_from_elsewhere(module, found[1], attribute, shelf)

    def come_from_elsewhere(
        self, module: Module, bindings: list[Binding], attribute: str, shelf: Shelf, depth: int = 0
    ) -> bool:
        """Whether all bindings of a name import it, with an attribute of it, from files not read yet."""
        return all(
            b.kind is BindingKind.IMPORT and self.ends_in(module, b.target, attribute, shelf, depth)
            for b in bindings
        )

    def ends_in(self, module: Module, target: str, attribute: str, shelf: Shelf, depth: int = 0) -> bool:
        """Whether an import's dotted target, and an attribute of it if one is taken, is something of a file
        that is not read yet and has it from nowhere outside the project.

        Args:
            depth: how many files that are read hand it on.
        """
        path, taken = self.locate(target, module.path), attribute
        if path is None:
            target, taken = _parent(target)
            path = self.locate(target, module.path) if target else None
        if path is None or path == module.path:
            return False
        if not shelf.is_read(path):
            return not taken or not self._leads_out(path, taken, shelf)
        holder = self._load(path)
        bindings = holder.scope.bindings.get(taken) if holder is not None else None
        if holder is None or not bindings or depth > _MOST_HANDS:
            return False
        attribute = "" if taken is attribute else attribute
        return self.come_from_elsewhere(holder, bindings, attribute, shelf, depth + 1)

    def _leads_out(self, path: str, name: str, shelf: Shelf) -> bool:
        """Whether a file may have a name from outside the project."""
        key = path, name
        if key in self._leading_out:
            return self._leading_out[key]
        self._leading_out[key] = False  # in a circle of imports
        self._leading_out[key] = any(
            self._may_bring(path, target, name, shelf)
            for target in shelf.imported(path)
            if target.endswith((f".{name}", ".*")) or target == name
        ) or (name.encode() in shelf.import_words(path) and shelf.is_renamed(path, name))
        return self._leading_out[key]

    def _may_bring(self, path: str, target: str, name: str, shelf: Shelf) -> bool:
        if self.locate(target, path) is not None:
            return False
        parent, _ = _parent(target)
        holder = self.locate(parent, path) if parent else None
        return holder is None or (holder != path and self._leads_out(holder, name, shelf))

    def find(self, dotted: str, importer: str) -> Module | None:
        """The project's module of that name as seen from a file; leading dots are relative imports."""
        path = self.locate(dotted, importer)
        return self._load(path) if path is not None else None

    def locate(self, dotted: str, importer: str) -> str | None:
        """The path of that module as seen from a file, without parsing it."""
        if dotted.partition(".")[0] == "torch":
            return None  # a copy of torch's files within the target is never what `import torch` finds
        last = dotted.rpartition(".")[2]
        if last and last not in self._by_tail:
            return None  # most imports are of names in modules, or of other libraries
        key = (importer.rpartition("/")[0], dotted)
        found = self._located.get(key)
        if found is None:
            found = self._located[key] = tuple(self._candidates(*key))
        is_relative = dotted.startswith(".")
        return next((path for path in found if is_relative or path != importer), None)

    def _candidates(self, folder: str, dotted: str) -> Iterator[str]:
        """Paths a module of that name can have for a file of that folder, the likeliest first."""
        level = len(dotted) - len(dotted.lstrip("."))
        parts = [p for p in dotted[level:].split(".") if p]
        if level:
            for _ in range(level - 1):
                folder = folder.rpartition("/")[0]
            if path := self._at(folder, parts):
                yield path
            return
        if not parts:
            return
        while True:
            if path := self._at(folder, parts):
                yield path
            if not folder:
                break
            folder = folder.rpartition("/")[0]
        candidates = [p for p in self._by_tail.get(parts[-1], []) if module_parts(p)[-len(parts) :] == parts]
        if len(parts) == 1:
            # A lone name may be any installed package: only a script's own folder or a source root counts.
            candidates = [p for p in candidates if p.endswith(f"/{parts[0]}/__init__.py")]
        yield from sorted(candidates, key=lambda p: (p.count("/"), p))[:1]

    def _at(self, folder: str, parts: list[str]) -> str | None:
        base = "/".join([folder, *parts] if folder else parts)
        if parts and f"{base}.py" in self._paths:
            return f"{base}.py"
        package = f"{base}/__init__.py" if base else "__init__.py"
        return package if package in self._paths else None

    def resolve(self, module: Module, node: ast.expr) -> Symbol | None:
        """What a name or attribute chain means where it stands; None where that cannot be told."""
        if node in self._resolved:
            return self._resolved[node]
        symbol: Symbol | None = None
        if isinstance(node, ast.Name):
            symbol = self._named(module, node)
        elif isinstance(node, ast.Attribute):
            base = self.resolve(module, node.value)
            symbol = self.member(base, node.attr) if base else None
        else:
            return None
        if not self._resolving:  # within a circle of imports the answer may be partial
            self._resolved[node] = symbol
        return symbol

    def _named(self, module: Module, node: ast.Name) -> Symbol | None:
        """What a name means; where a function imports it in several branches, in that of the place."""
        scope = module.scope_of(node)
        found = scope.lookup(node.id)
        if found is not None:
            meant = imported_by(module, found[0], node.id, node)
            if len(meant) < len(found[1]):
                return _preferred([s for b in meant if (s := self._bound(module, found[0], b))])
        return self.lookup(module, scope, node.id)

    def member(self, base: Symbol, name: str) -> Symbol | None:
        """An attribute of a module or class."""
        if base.module is None:
            return Symbol(canonical(f"{base.name}.{name}"))
        if isinstance(base.node, ast.Module):
            found = self.lookup(base.module, base.module.scope, name)
            if found:
                return found
            if base.module.path.rpartition("/")[2] == "__init__.py":
                sub = self.find(f".{name}", base.module.path)
                if sub:
                    return Symbol(sub.path, sub, sub.tree)
            return None
        if isinstance(base.node, ast.ClassDef):
            scope = base.module.table.scopes[base.node]
            for binding in reversed(scope.bindings.get(name, [])):
                if binding.kind is BindingKind.DEFINITION:
                    return Symbol(f"{base.name}.{name}", base.module, binding.node)
        return None

    def lookup(self, module: Module, scope: Scope, name: str) -> Symbol | None:
        """What a name means in a scope."""
        found = scope.lookup(name)
        key = (found[0] if found else module.scope, name)
        if key in self._known:
            return self._known[key]
        if key in self._resolving:
            return None
        self._resolving.add(key)
        try:
            if found is not None:
                symbols = [s for b in _in_force(module, found[1]) if (s := self._bound(module, found[0], b))]
                symbol = _preferred(symbols)
            else:
                symbol = self._starred(module, name)
        finally:
            self._resolving.discard(key)
        if not self._resolving:  # within a circle of imports the answer may be partial
            self._known[key] = symbol
        return symbol

    def _bound(self, module: Module, scope: Scope, binding: Binding) -> Symbol | None:
        match binding.kind:
            case BindingKind.IMPORT:
                return self.imported(module, binding.target)
            case BindingKind.DEFINITION:
                return Symbol(f"{module.path}:{_qualified(module, binding.node)}", module, binding.node)
            case BindingKind.ASSIGN if (
                isinstance(binding.value, ast.Name | ast.Attribute) and not binding.unpack
            ):
                if (
                    isinstance(scope.node, ast.Module | ast.ClassDef)
                    or len(scope.bindings[binding.name]) == 1
                ):
                    return self.resolve(module, binding.value)
        return None

    def imported(self, module: Module, target: str) -> Symbol | None:
        """What an import's dotted target means: a project module, a name in one, or an outside name."""
        found = self.find(target, module.path)
        if found is not None:
            return Symbol(found.path, found, found.tree)
        holder = self.holder(module, target)
        if holder is not None:
            return self.lookup(holder, holder.scope, target.rpartition(".")[2])
        return None if target.startswith(".") else Symbol(canonical(target))

    def holder(self, module: Module, target: str) -> Module | None:
        """The other module of the project whose name an import's dotted target takes."""
        parent, _ = _parent(target)
        found = self.find(parent, module.path) if parent else None
        return found if found is not module else None

    def _starred(self, module: Module, name: str) -> Symbol | None:
        scopes = [module.scope, *(s for s in module.table.scopes.values() if s.star_imports)]
        for target in dict.fromkeys(t for s in scopes for t in s.star_imports):
            if name in public_names_of(target):
                return Symbol(canonical(f"{target}.{name}"))
            path = None if name.startswith("_") else self.locate(target, module.path)
            if path is not None and path != module.path and self.may_have(path, name):
                holder = self._load(path)
                found = self.lookup(holder, holder.scope, name) if holder is not None else None
                if found:
                    return found
        return None


def _parent(target: str) -> tuple[str, str]:
    """What an import's dotted target is taken from, leading dots kept, and its last name."""
    dots = len(target) - len(target.lstrip("."))
    head, _, last = target.rpartition(".")
    return (head if len(head) > dots else target[:dots]), last


def _preferred(symbols: list[Symbol]) -> Symbol | None:
    """Among alternatives (a try/except import, a version gate) the one that names torch."""
    for symbol in symbols:
        if symbol.name.startswith("torch."):
            return symbol
    return symbols[-1] if symbols else None


def _in_force(module: Module, bindings: list[Binding]) -> list[Binding]:
    """Bindings of a name without imports at the top of a module that a `def` or `class` further down, at the
    top as well, replaces for good."""
    at_top = [binding for binding in bindings if module.parent(binding.node) is module.tree]
    ends = [module.span(b.node).start for b in at_top if b.kind is BindingKind.DEFINITION]
    gone = [
        binding
        for binding in at_top
        if ends and binding.kind is BindingKind.IMPORT and module.span(binding.node).start < max(ends)
    ]
    return [binding for binding in bindings if binding not in gone]


def module_parts(path: str) -> list[str]:
    """The parts of the dotted name of a file, from the target down."""
    folder, slash, name = path.rpartition("/")
    parts = (folder + slash + (name.rpartition(".")[0] or name)).split("/")
    return parts[:-1] if parts[-1] == "__init__" else parts


def _qualified(module: Module, node: ast.AST) -> str:
    names = [getattr(node, "name", "<lambda>")]
    names += [p.name for p in module.ancestors(node) if hasattr(p, "name") and isinstance(p.name, str)]
    return ".".join(reversed(names))
