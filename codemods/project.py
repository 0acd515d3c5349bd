"""The project as rules see it: modules, names, values, links, and questions about them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from codemods.analysis.evaluate import Evaluator
from codemods.analysis.holding import NO_MODEL, Holding, Maybe, No, Sharded, WrapCall
from codemods.analysis.index import Index, Symbol
from codemods.analysis.link import Links
from codemods.analysis.meanings import Meanings
from codemods.analysis.module import Module
from codemods.analysis.reach import reached
from codemods.analysis.spoken_names import (
    is_for_fsdp2,
    is_made_plain,
    is_other_wrapper,
    is_said_unsharded,
    is_where_unsharded,
    says_model,
    says_no_model,
    says_no_optimizer,
)
from codemods.analysis.unwrapped_branches import is_where_not_wrapped, is_where_wrapped
from codemods.analysis.values import Value
from codemods.model import Options
from codemods.plain_tests import (
    is_of_other_engine,
    is_of_traced_models,
    is_one_process,
    is_plain_test,
    is_test_path,
)

if TYPE_CHECKING:
    from codemods.dual_stack.shortened import Shortened


@dataclass(frozen=True, slots=True, eq=False)
class MethodCall:
    """`receiver.method(...)` somewhere in the project."""

    module: Module
    node: ast.Call
    receiver: ast.expr


@dataclass(frozen=True, slots=True, eq=False)
class NameUse:
    """One use of a name from elsewhere, not counting import statements.

    Attributes:
        node: the name or the whole attribute chain (`fsdp.MixedPrecision`).
        symbol: what it means.
    """

    module: Module
    node: ast.Name | ast.Attribute
    symbol: Symbol


@dataclass(slots=True)
class Project:
    """Everything known about the code; rules only ask.

    Attributes:
        modules: path -> module: those that name FSDP, those that sharded models can get to, and whatever a
            question has led to.
        looked_at: those of them that rules look through.
        linked: the files that name FSDP, what imports them, and what all of these import.
        mentions: coarse words found in any file read or not: `batch_norm`, `set_device`.
        line_length: what the repository's formatter is set to, if it says.
        imports: path -> paths of the project's files that it imports.
        wraps: every call of the FSDP1 constructor, in the order of files and lines.
        memo: answers about the whole project that are worked out once.
        dropped: what `--drop-fsdp1` has taken out of it already.
    """

    options: Options
    modules: dict[str, Module]
    index: Index
    links: Links
    evaluator: Evaluator
    meanings: Meanings
    wraps: list[WrapCall] = field(default_factory=list)
    looked_at: list[Module] = field(default_factory=list)
    linked: tuple[str, ...] = ()
    mentions: frozenset[str] = frozenset()
    imports: dict[str, set[str]] = field(default_factory=dict)
    line_length: int | None = None
    memo: dict[str, object] = field(default_factory=dict)
    dropped: Shortened | None = None
    _seen: set[Module] = field(default_factory=set)
    _also: set[Module] = field(default_factory=set)
    _uses: dict[str, list[NameUse]] = field(default_factory=dict)
    _methods: dict[str, list[MethodCall]] = field(default_factory=dict)

    def as_it_is(self, path: str) -> Module:
        """A file as the disk holds it, with the branches that `--drop-fsdp1` takes out."""
        known = self.dropped.originals.get(path) if self.dropped is not None else None
        return known or self.modules[path]

    def resolve(self, module: Module, node: ast.expr) -> Symbol | None:
        """What a name or attribute chain means; `symbol.name` is canonical (`codemods.torch_names`)."""
        return self.index.resolve(module, node)

    def outside(self, module: Module, node: ast.expr) -> Symbol | None:
        """What a name or attribute chain means if that is nothing of the project; cheaper than `resolve`."""
        return self.index.outside(module, node, self.links.shelf)

    def meaning(self, module: Module, text: str) -> str | None:
        """The canonical name that dotted text in a type or comment means at the top of a module; none of
        FSDP1 is in a file that is not read yet."""
        head, *attributes = text.split(".")
        bindings, taken = module.scope.bindings.get(head), attributes[0] if attributes else ""
        if bindings and self.index.come_from_elsewhere(module, bindings, taken, self.links.shelf):
            return None
        symbol = self.index.lookup(module, module.scope, head)
        for attribute in attributes:
            symbol = self.index.member(symbol, attribute) if symbol is not None else None
        return symbol.name if symbol is not None else None

    def evaluate(self, module: Module, node: ast.expr) -> Value:
        """What an expression comes to."""
        return self.evaluator.evaluate(module, node)

    def sharded(self, module: Module, node: ast.expr) -> Holding:
        """Whether an expression holds a sharded model: `Sharded`, `Maybe` or `No`.

        Not where the condition fails under which alone it is wrapped, nor in functions for FSDP2's models.
        Where it is one on some paths only, names and conditions have a say: a scheduler that comes out of one
        list with models is none, and neither is the model behind `if not use_fsdp:`.
        """
        return self._as_said(module, node, self.links.sharded(module, node))

    def sharded_or_around(self, module: Module, node: ast.expr) -> Holding:
        """The same, also for a module of which parts are sharded: what it saves and loads is sharded too."""
        holding = self.sharded(module, node)
        if isinstance(holding, No) and not is_made_plain(module, node):
            holding = self._as_said(module, node, self.links.around.holding(module, node))
        return holding

    def _as_said(self, module: Module, node: ast.expr, holding: Holding) -> Holding:
        """What values say, and what names and conditions say to it."""
        if isinstance(holding, No):
            return holding
        if is_said_unsharded(module, node) or is_for_fsdp2(module, node):
            return No()
        if self.links.evidence.is_denied(module, node):
            return No()
        if holding.sites and is_where_not_wrapped(self.links, module, node, _beside(module, holding.sites)):
            return No()
        if is_of_other_engine(module) and any(isinstance(h, NO_MODEL) for h in self.links.held(module, node)):
            return No()
        return No() if isinstance(holding, Maybe) and self._is_none(module, node) else holding

    def _is_none(self, module: Module, node: ast.expr) -> bool:
        if is_plain_test(module) or is_one_process(module) or is_of_traced_models(module):
            return True
        if is_of_other_engine(module) or says_no_model(node):
            return True
        if is_other_wrapper(module, node) or is_made_plain(module, node):
            return True
        return is_where_unsharded(module, node)

    def optimizer_of(self, module: Module, node: ast.expr) -> Holding:
        """Whether an expression holds the optimizer of a sharded model."""
        holding = self.links.optimizer_of(module, node)
        if isinstance(holding, No):
            return holding
        if holding.sites and is_where_not_wrapped(self.links, module, node, _beside(module, holding.sites)):
            return No()
        if any(says_model(subject) for subject in self.links.evidence.denied(module, node)):
            return No()
        if not isinstance(holding, Maybe):
            return holding
        is_none = says_no_optimizer(node) or is_plain_test(module) or is_where_unsharded(module, node)
        return No() if is_none else holding

    def is_where_wrapped(self, module: Module, node: ast.expr) -> bool:
        """Whether a place is reached only where what an expression holds was wrapped: `if cfg.fsdp:`."""
        holding = self.links.sharded(module, node)
        return not isinstance(holding, No) and is_where_wrapped(module, node, _beside(module, holding.sites))

    def is_any_object(self, module: Module, node: ast.expr) -> bool:
        """Whether optimizers can come by, under a name that does not say that it is a model."""
        return not says_model(node) and bool(self.links.optimizers(module, node))

    def group(self, path: str) -> str:
        """A name for files that belong together: one imports the other, or a third imports both."""
        return self.links.shelf.group(path)

    def with_wraps(self) -> frozenset[str]:
        """The files that wrap models, what they import, and what imports them and speaks of FSDP itself,
        however indirectly; of tests only those that wrap."""
        sites = {site.module.path for site in self.wraps}
        programs = {path for path in sites if not is_test_path(path)}
        speaking = {
            path
            for path in reached(programs, self.links.shelf.importers)
            if path in self.modules and self.modules[path].says_fsdp
        }
        found = reached(programs, self.imports) | speaking
        return frozenset(path for path in found if not is_test_path(path)) | sites

    def is_one_program(self, path: str, other: str) -> bool:
        """Whether a file can run together with another: one imports the other, or a third both."""
        return path == other or other in self.links.shelf.together(path)

    def is_imported(self, path: str, other: str) -> bool:
        """Whether one of two files imports the other, however indirectly."""
        shelf = self.links.shelf
        return path in shelf.users(other) or other in shelf.users(path)

    def method_calls(self, *names: str) -> Iterator[MethodCall]:
        """Every `x.<name>(...)`, whatever x is."""
        for name in names:
            if name not in self._methods:
                self._methods[name] = [
                    MethodCall(module, call, call.func.value)
                    for module in self.looked_at
                    for call in module.called(name)
                    if isinstance(call.func, ast.Attribute)
                ]
            yield from self._methods[name]

    def reading(self, *words: str) -> list[Module]:
        """The modules in whose text one of some names stands, of all that are linked by imports."""
        shelf = self.links.shelf
        found = shelf.load(sorted({path for word in words for path in shelf.with_word(word)}))
        self._also.update(found)
        return found

    def with_takers(self, names: Mapping[str, Iterable[str]]) -> list[Module]:
        """Some files, and those that may take one of their names, directly or by way of a star import.

        Args:
            names: path -> names.
        """
        shelf, importers = self.links.shelf, self.links.shelf.importers
        wanted = set(names)
        for path, words in names.items():
            waiting, asked = [path], {path}
            while waiting:
                for taker in importers.get(waiting.pop(), ()):
                    if taker in asked or taker not in shelf:
                        continue
                    asked.add(taker)
                    if shelf.has_star(taker):
                        waiting.append(taker)
                    elif not any(word.encode() in shelf.import_words(taker) for word in words):
                        continue
                    wanted.add(taker)
        return shelf.load(sorted(wanted))

    @property
    def naming(self) -> list[Module]:
        """The modules that name FSDP, or something that another one has from it."""
        return self.links.naming

    def static_calls(self, *names: str) -> Iterator[MethodCall]:
        """Every `FSDP.<name>(...)`, the class under whatever name, one that derives from it, or a sharded
        model in its place."""
        from codemods.torch_names import FSDP

        for call in self.method_calls(*names):
            symbol = self.resolve(call.module, call.receiver)
            if symbol is not None and symbol.module is not None and isinstance(symbol.node, ast.ClassDef):
                if FSDP in self.links.classes.outside_bases(symbol.node, symbol.module):
                    yield call
            elif symbol is not None:
                if symbol.name == FSDP:
                    yield call
            elif isinstance(self.sharded(call.module, call.receiver), Sharded):
                yield call

    def calls_of(self, name: str) -> Iterator[tuple[Module, ast.Call]]:
        """Every call of a function or class with that canonical name."""
        for use in self.uses(name):
            parent = use.module.parent(use.node)
            if isinstance(parent, ast.Call) and parent.func is use.node:
                yield use.module, parent

    def uses(self, name: str) -> list[NameUse]:
        """Every use of the canonical name of something outside the project."""
        return self._all_uses().get(name, [])

    def used_names(self) -> list[str]:
        """Canonical names from outside the project that are used somewhere and lie in torch's FSDP."""
        return sorted(name for name in self._all_uses() if name.startswith("torch.distributed."))

    def _all_uses(self) -> dict[str, list[NameUse]]:
        for module in (*self.looked_at, *sorted(self._also, key=lambda module: module.path)):
            if module in self._seen:
                continue
            self._seen.add(module)
            for node, symbol in self.meanings.of(module):
                if symbol.module is None:
                    self._uses.setdefault(symbol.name, []).append(NameUse(module, node, symbol))
        return self._uses


def _beside(module: Module, sites: frozenset[WrapCall]) -> frozenset[WrapCall]:
    """The wraps that decide what a file's conditions mean: tests shard under conditions of their own."""
    if is_test_path(module.path):
        return sites
    return frozenset(site for site in sites if not is_test_path(site.module.path)) or sites
