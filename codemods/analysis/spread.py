"""Which expressions a sharded model can get to, followed forwards: all that `Links` can find, and some more.

`Links` answers exactly what an expression holds, by going backwards through all that leads to it. Most
expressions of a project hold no sharded model, and most of its files never see one. Here models are followed
from where they are made, by whatever a value can go through, containers taken as one: where nothing arrives
there is nothing to ask, and a file that nothing leads to is not parsed.

What is followed are marks: `MODEL` and its like, an object of a family of classes of which an attribute or a
method is of interest (`Family`), and the definition of a function or class that gives something of interest.
"""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from codemods.analysis.evidence import quoted_types
from codemods.analysis.functions import is_property
from codemods.analysis.module import Module
from codemods.analysis.scopes import BindingKind, Scope
from codemods.analysis.shelf import Before
from codemods.analysis.spread_marks import Cell, Family, Mark, Taker
from codemods.errors import too_entangled

if TYPE_CHECKING:
    from codemods.analysis.link import Links

_APART = 8
"""How many families of a group of files are told apart; the objects of all further ones are taken for one
kind."""
_MOST_STEPS = 1_500_000
"""Steps after which a run is given up: ten times of what the largest repository that was measured takes."""
_RARE = 10
"""In how many files an attribute's name may stand for all its reads to be followed, whatever they are of."""
_BY_PYTHON = frozenset({"__call__", "__enter__", "__aenter__"})
"""Methods that are called without being named."""
_ASKING = rb"\bgetattr\s*\([^\'\"]*[\'\"]"
_WORDS = re.compile(r"\w+")


class Spread:
    """Where marks have got to.

    Attributes:
        marks: expression -> what arrives there.
    """

    def __init__(self, links: Links) -> None:
        self.links = links
        self.marks: dict[ast.AST, set[Mark]] = {}
        self._waiting: deque[tuple[Module, ast.expr, Mark]] = deque()
        self._variables: dict[tuple[Scope, str], Cell] = {}
        self._attributes: dict[Family | str, dict[str, Cell]] = {}
        self._results: dict[ast.AST, Cell] = {}
        self._families: dict[ast.ClassDef, Family] = {}
        self._interesting: set[ast.AST | Family] = set()
        self._objects: dict[Family, Family] = {}
        self._followed: dict[tuple[Family, str], ast.AST] = {}
        self._apart: dict[str, list[Family]] = {}
        self._annotations: dict[Module, list[ast.Constant]] = {}
        self._own: dict[Module, dict[tuple[ast.ClassDef | None, str], list[ast.expr]]] = {}

    def has(self, node: ast.AST, *marks: Mark) -> bool:
        """Whether one of some marks arrives at an expression."""
        found = self.marks.get(node)
        return found is not None and not found.isdisjoint(marks)

    def add(self, module: Module, node: ast.expr, mark: Mark) -> None:
        """Say that a mark arrives at an expression."""
        found = self.marks.get(node)
        if found is None:
            found = self.marks[node] = set()
        if mark not in found:
            found.add(mark)
            self._waiting.append((module, node, mark))

    def run(self, hand_on: Callable[[Module, ast.expr, Mark], None]) -> None:
        """Follow every mark to its end.

        Raises:
            CodemodError: that would not end soon.
        """
        steps = 0
        while self._waiting:
            steps += 1
            if steps > _MOST_STEPS:
                raise too_entangled(self.links.shelf.paths)
            hand_on(*self._waiting.popleft())

    def put_variable(self, module: Module, scope: Scope, name: str, mark: Mark) -> None:
        """Say that a mark arrives in a variable."""
        key = scope, name
        cell = self._variables.get(key)
        if cell is None:
            cell = self._variables[key] = Cell()
            for home, node in self._reads(module, scope, name):
                cell.take(self.adds(home, node))
            if isinstance(scope.node, ast.Module):
                for home, taking, local in self._imports(module, name):
                    cell.take(partial(self.put_variable, home, taking, local))
            elif isinstance(scope.node, ast.ClassDef):
                family = self.family(scope.node, module)
                cell.take(lambda mark: self.put_attribute(family, name, mark))
        cell.put(mark)

    def adds(self, module: Module, node: ast.expr) -> Taker:
        """The way to an expression."""
        return partial(self.add, module, node)

    def _reads(self, module: Module, scope: Scope, name: str) -> Iterator[tuple[Module, ast.expr]]:
        for node in module.named(name):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                found = module.scope_of(node).lookup(name)
                if found is not None and found[0] is scope:
                    yield module, node
        if isinstance(scope.node, ast.Module):
            for home in self.naming(module, name):
                yield from ((home, node) for node in self._reads_elsewhere(module, home, name))

    def _reads_elsewhere(self, module: Module, home: Module, name: str) -> Iterator[ast.expr]:
        """`module.name`, and the name where only a star import can bind it."""
        index = self.links.index
        stars = [star for star in home.scope.star_imports if index.find(star, home.path) is module]
        for node in home.named(name):
            if not isinstance(node.ctx, ast.Load):
                continue
            if isinstance(node, ast.Attribute):
                base = index.resolve(home, node.value)
                if base is not None and base.node is module.tree:
                    yield node
            elif stars and home.scope_of(node).lookup(name) is None:
                yield node

    def _imports(self, module: Module, name: str) -> Iterator[tuple[Module, Scope, str]]:
        """The variables of other modules that import what a module has at its top."""
        for home in self.naming(module, name):
            for scope in home.scopes():
                for local, bindings in scope.bindings.items():
                    for binding in bindings:
                        is_it = binding.kind is BindingKind.IMPORT and _last(binding.target) == name
                        if is_it and self.links.index.holder(home, binding.target) is module:
                            yield home, scope, local

    def naming(self, module: Module, name: str) -> list[Module]:
        """The other modules that can name what a module has at its top."""
        shelf = self.links.shelf
        users = shelf.users(module.path)
        paths = [path for path in shelf.with_word(name) if path in users and path != module.path]
        return shelf.load(path for path in paths if shelf.may_name(path, name))

    def family(self, node: ast.ClassDef, module: Module) -> Family:
        """The family of a class."""
        found = self._families.get(node)
        if found is None:
            classes = self.links.classes
            members, waiting = {node: module}, [(node, module)]
            while waiting:
                one, home = waiting.pop()
                for other, where in (*classes.lineage(one, home), *classes.heirs(one, home)):
                    if other not in members:
                        members[other] = where
                        waiting.append((other, where))
            found = Family(list(members.items()))
            self._families.update(dict.fromkeys(members, found))
        return found

    def put_attribute(self, owner: Family | str, name: str, mark: Mark) -> None:
        """Say that a mark arrives in an attribute of the objects of a family, or of records."""
        cell = self._attribute(owner, name)
        is_new = not cell.marks
        cell.put(mark)
        kind = self._objects.get(owner, owner) if isinstance(owner, Family) else owner
        if isinstance(kind, Family) and kind is not owner:
            self._put_among_others(kind, name, mark)
        if is_new and isinstance(owner, Family) and not self._look_for_reads(owner, cell, name):
            self._look_for_objects(owner)

    def _look_for_reads(self, owner: Family, cell: Cell, name: str) -> bool:
        """Take every attribute of a rare private name for one of the objects in question; whether that was
        done."""
        if not name.startswith("_") or name in _BY_PYTHON:
            return False
        shelf = self.links.shelf
        paths = {
            *shelf.where(name, just_before=Before.ANOTHER),
            *shelf.where(name, rb"[\'\"]", before=_ASKING),
        }
        paths = shelf.together(*(home.path for _, home in owner.classes)).among(paths)
        if len(paths) > _RARE:
            return False
        for home in shelf.load(sorted(paths)):
            for read in home.named(name):
                if isinstance(read, ast.Attribute) and isinstance(read.ctx, ast.Load):
                    cell.take(self.adds(home, read))
            for call in home.called("getattr"):
                asked = call.args[1] if len(call.args) > 1 else None
                if isinstance(asked, ast.Constant) and asked.value == name:
                    cell.take(self.adds(home, call))
        return True

    def take_attribute(self, owner: Family | str, name: str, taker: Taker) -> None:
        """Hand on what arrives in an attribute of the objects of a family, or of records."""
        self._attribute(owner, name).take(taker)

    def _attribute(self, owner: Family | str, name: str) -> Cell:
        cells = self._attributes.setdefault(owner, {})
        cell = cells.get(name)
        if cell is None:
            cell = cells[name] = Cell()
            for node, home in owner.classes if isinstance(owner, Family) else ():
                for read in self._own_uses(home, node, name):
                    cell.take(self.adds(home, read))
        return cell

    def _own_uses(self, module: Module, owner: ast.ClassDef, name: str = "") -> list[ast.expr]:
        """Where a class reads an attribute of `self`, `cls` or `super()`; without a name where it uses `self`
        and `cls` for something else."""
        if module not in self._own:
            found = self._own[module] = {}
            for own in _own(module):
                read = module.parent(own)
                if not isinstance(read, ast.Attribute):
                    if isinstance(own, ast.Name):
                        found.setdefault((module.class_of(own), ""), []).append(own)
                elif isinstance(read.ctx, ast.Load):
                    found.setdefault((module.class_of(own), read.attr), []).append(read)
        return self._own[module].get((owner, name), [])

    def _look_for_objects(self, family: Family) -> None:
        """Follow the objects of a family, once something about them is of interest."""
        if family in self._interesting:
            return
        self._interesting.add(family)
        kind = self._objects[family] = self._kind(family)
        if kind is not family:
            for name, cell in list(self._attributes.get(family, {}).items()):
                for mark in list(cell.marks):
                    self._put_among_others(kind, name, mark)
        for node, home in family.classes:
            self.look_for(home, node)
            outer = home.parent(node)
            if isinstance(outer, ast.ClassDef):  # `self.Models(...)`
                self._attribute(self.family(outer, home), node.name).put(node)
            for own in self._own_uses(home, node):
                self.add(home, own, kind)

    def _put_among_others(self, kind: Family, name: str, mark: Mark) -> None:
        """Say that a mark arrives in an attribute of objects that are not told apart: their methods are one,
        which gives what any of them does."""
        if isinstance(mark, ast.FunctionDef | ast.AsyncFunctionDef):
            method = self._followed.setdefault((kind, name), ast.Pass())
            self.take_result(mark, self._result(method).put)
            mark = method
        self._attribute(kind, name).put(mark)

    def _kind(self, family: Family) -> Family:
        """What the objects of a family are taken for: its own, or the last one of its group of files."""
        _, home = family.classes[0]
        apart = self._apart.setdefault(self.links.shelf.group(home.path), [])
        if len(apart) <= _APART:
            apart.append(family if len(apart) < _APART else Family([]))
        return family if family in apart else apart[-1]

    def objects(self, node: ast.ClassDef, module: Module) -> Family:
        """The mark of the objects of a class."""
        family = self.family(node, module)
        return self._objects.get(family, family)

    def look_for(self, module: Module, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        """Mark every use of the name of a definition."""
        index = self.links.index
        names = self.links.callers.names(module, node)
        is_local = module.function(node) is not None
        homes = [module] if is_local else [module, *(m for name in names for m in self.naming(module, name))]
        for home in dict.fromkeys(homes):
            for used in home.named(*names):
                symbol = index.resolve(home, used) if isinstance(used.ctx, ast.Load) else None
                if symbol is not None and symbol.node is node:
                    self.add(home, used, node)
            if isinstance(node, ast.ClassDef):
                self._in_annotations(home, node, names)

    def _in_annotations(self, home: Module, node: ast.ClassDef, names: Iterable[str]) -> None:
        """Annotations in quotation marks that name a class."""
        if home not in self._annotations:
            self._annotations[home] = list(quoted_types(home))
        for string in self._annotations[home]:
            if not set(names).isdisjoint(_WORDS.findall(str(string.value))):
                self.add(home, string, node)

    def put_result(self, module: Module, function: ast.AST, mark: Mark) -> None:
        """Say that a function gives back, or yields, something marked."""
        self._result(function).put(mark)
        if function in self._interesting:
            return
        self._interesting.add(function)
        if isinstance(function, ast.Lambda):
            self.add(module, function, function)
        elif isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            owner = module.parent(function)
            if isinstance(owner, ast.ClassDef):
                self._look_for_method(self.family(owner, module), function)
            else:
                self.look_for(module, function)

    def _look_for_method(self, family: Family, method: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if is_property(method):  # whoever reads it gets what it gives, and never the function
            self.take_result(method, lambda mark: self.put_attribute(family, method.name, mark))
            return
        # Methods of one name get to the same places: one of them is followed, with what all of them give.
        followed = self._followed.setdefault((family, method.name), method)
        if followed is method:
            self.put_attribute(family, method.name, method)
        else:
            self.take_result(method, self._result(followed).put)

    def take_result(self, function: ast.AST, taker: Taker) -> None:
        """Hand on what a function gives back."""
        self._result(function).take(taker)

    def _result(self, function: ast.AST) -> Cell:
        return self._results.setdefault(function, Cell())


def _own(module: Module) -> Iterator[ast.expr]:
    """Every `self`, `cls` and `super()`."""
    yield from (name for name in module.named("self", "cls") if isinstance(name, ast.Name))
    yield from (call for call in module.called("super") if isinstance(call.func, ast.Name))


def _last(dotted: str) -> str:
    return dotted.rpartition(".")[2]
