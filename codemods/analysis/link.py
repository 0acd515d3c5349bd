"""Which expressions hold a sharded model, or an optimizer of one, anywhere in the project.

A question is answered on demand: the expression is followed backwards through assignments, attributes,
parameters (to every call), return values, containers and pass-through methods, until it reaches a wrap call
or something that is none.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from codemods.analysis.around import Around
from codemods.analysis.attributes import Attributes
from codemods.analysis.called_classes import optimizers_called
from codemods.analysis.callers import Callers
from codemods.analysis.calls import Calls
from codemods.analysis.classes import Classes
from codemods.analysis.containers import Containers
from codemods.analysis.evidence import Evidence, called_optimizers, optimizers_in
from codemods.analysis.functions import Functions
from codemods.analysis.holding import (
    DECLARED,
    NO_MODEL,
    NOTHING,
    OTHER,
    POSSIBLE,
    POSSIBLY_PREPARED,
    PREPARED,
    Declared,
    Defined,
    HeldSet,
    Holding,
    Maybe,
    No,
    OptimizerCall,
    Part,
    Path,
    Possible,
    Prepared,
    Sharded,
    Unseen,
    WrapCall,
)
from codemods.analysis.index import Index
from codemods.analysis.library_models import LibraryModel, library_models
from codemods.analysis.meanings import Meanings
from codemods.analysis.module import Module
from codemods.analysis.parameter_lists import ParameterLists
from codemods.analysis.said import is_said
from codemods.analysis.shelf import Shelf
from codemods.analysis.spread import Spread
from codemods.analysis.spread_marks import MODEL, OPTIMIZER, SAID
from codemods.analysis.stores import Stores
from codemods.analysis.variables import Variables
from codemods.errors import too_entangled

_Key = TypeVar("_Key")
_Answer = TypeVar("_Answer")
_DEEPEST = 70
_LONGEST = 4
_EXACT = 2
"""Keys of a path that are told apart; those further in stand for any, or containers that a function nests in
a circle would have paths without end."""
_FOREVER = 1 << 30
_MOST_QUESTIONS = 400_000
"""Questions after which a run is given up: eight times of what any repository that was measured asks. Where
everything leads to everything there would be no end."""
_TRIES = 2
"""How often a question within a circle is answered anew before its answer stays."""


@dataclass(slots=True)
class Links:
    """Answers what expressions hold.

    Attributes:
        shelf: the files that can be read.
        naming: the modules that say FSDP.
        callers: the calls of functions and classes.
        wraps: the call nodes that are wrap calls.
        meanings: what names mean, by file.
        launched: files of programs for which settings elsewhere may choose FSDP.
    """

    index: Index
    shelf: Shelf
    naming: list[Module]
    callers: Callers
    wraps: dict[ast.Call, WrapCall]
    meanings: Meanings
    launched: frozenset[str] = frozenset()
    _known: dict[tuple[ast.expr, Path], HeldSet] = field(default_factory=dict)
    _active: dict[tuple[ast.expr, Path], int] = field(default_factory=dict)
    _partial: dict[tuple[ast.expr, Path], tuple[HeldSet, int]] = field(default_factory=dict)
    _cut: int = _FOREVER
    _tries: dict[tuple[ast.expr, Path], int] = field(default_factory=dict)
    _optimizers: dict[Module, frozenset[ast.Call]] = field(default_factory=dict)
    _is_possible: bool = False
    _questions: int = 0
    spread: Spread | None = None
    by_libraries: dict[ast.expr, LibraryModel] = field(default_factory=dict)
    evidence: Evidence = field(init=False)
    stores: Stores = field(init=False)
    classes: Classes = field(init=False)
    functions: Functions = field(init=False)
    variables: Variables = field(init=False)
    attributes: Attributes = field(init=False)
    containers: Containers = field(init=False)
    calls: Calls = field(init=False)
    parameters: ParameterLists = field(init=False)
    around: Around = field(init=False)

    def __post_init__(self) -> None:
        self.evidence = Evidence(self.index, self.naming)
        self.stores = Stores(self.shelf)
        self.classes = Classes(self.index, self.callers)
        self.functions = Functions(self)
        self.variables = Variables(self)
        self.attributes = Attributes(self)
        self.containers = Containers(self)
        self.calls = Calls(self)
        self.parameters = ParameterLists(self)
        self.around = Around(self)
        words = ("FullyShardedDataParallel", "FSDP")
        texts = (module.text for module in self.naming)
        self.by_libraries = library_models(self.classes, self.meanings, self.naming, self.launched)
        self._is_possible = (
            bool(self.wraps)
            or bool(self.by_libraries)
            or any(word in text for text in texts for word in words)
        )

    def sharded(self, module: Module, node: ast.expr) -> Holding:
        """Whether an expression holds a sharded model where it stands."""
        if not self.may_be_sharded(node):
            return No()
        if not self.wraps and is_said(self, module, node):
            return Sharded(frozenset())  # whatever it holds
        held = self.held(module, node)
        sites = frozenset(h for h in held if isinstance(h, WrapCall))
        declared = any(isinstance(h, Declared) for h in held) or is_said(self, module, node)
        if not sites and not declared:
            return Maybe(sites) if any(isinstance(h, Possible) for h in held) else No()
        if declared or not any(isinstance(h, NO_MODEL) for h in held):
            return Sharded(sites)
        return Maybe(sites)

    def is_certain_part(self, module: Module, node: ast.expr) -> bool:
        """Whether an expression holds modules inside a sharded model and nothing else."""
        return all(isinstance(h, Part | WrapCall | Declared) for h in self.held(module, node))

    def parts_of(self, module: Module, node: ast.expr) -> bool:
        """Whether an expression can hold a module inside a sharded model."""
        return self._can_hold(node, MODEL) and any(isinstance(h, Part) for h in self.held(module, node))

    def may_be_sharded(self, node: ast.expr) -> bool:
        """Whether a sharded model can get to an expression at all."""
        return self._is_possible and self._can_hold(node, MODEL, SAID)

    def _can_hold(self, node: ast.expr, *marks: str) -> bool:
        """Whether one of some marks gets to an expression."""
        return self.spread is None or self.spread.has(node, *marks)

    def is_unseen(self, module: Module, node: ast.expr) -> bool:
        """Whether it was not found where what an expression holds comes from."""
        held = self.held(module, node)
        return all(isinstance(h, Unseen) for h in held)

    def optimizers(self, module: Module, node: ast.expr) -> list[tuple[Module, ast.Call]]:
        """The constructor calls of the optimizers an expression can hold."""
        return [(h.module, h.node) for h in self.held(module, node) if isinstance(h, OptimizerCall)]

    def builds_optimizer(self, module: Module, call: ast.Call) -> bool:
        """Whether a call constructs an optimizer."""
        known = self._optimizers.get(module)
        if known is None:
            called = (one for one in called_optimizers(module) if not self._is_own(module, one.func))
            known = self._optimizers[module] = frozenset((*optimizers_in(module, self.meanings), *called))
        return call in known or bool(optimizers_called(self, module, call))

    def _is_own(self, module: Module, callee: ast.expr) -> bool:
        """Whether a callee means something of the project, which is followed."""
        symbol = self.index.resolve(module, callee)
        return symbol is not None and symbol.module is not None

    def optimizer_of(self, module: Module, node: ast.expr) -> Holding:
        """Whether an expression holds the optimizer of a sharded model."""
        sites: set[WrapCall] = set()
        certain, found = True, False
        for home, call in self.optimizers(module, node) if self._can_hold(node, OPTIMIZER) else ():
            for owner in self.parameters.owners(home, call):
                match self.sharded(*owner):
                    case Sharded(owned):
                        sites |= owned
                        found = True
                    case Maybe(owned):
                        sites |= owned
                        certain, found = False, True
        for held in self.held(module, node) if self.by_libraries and self._can_hold(node, OPTIMIZER) else ():
            if isinstance(held, Prepared):
                certain, found = certain and held.is_certain, True
        if not found:
            return No()
        return Sharded(frozenset(sites)) if certain else Maybe(frozenset(sites))

    def parameter_owners(self, module: Module, call: ast.Call) -> list[ast.expr]:
        """`m` of every `m.parameters()` or `m.named_parameters()` an optimizer is given, in the same file."""
        return [owner for home, owner in self.parameters.owners(module, call) if home is module]

    def calls_of(
        self, module: Module, function: ast.FunctionDef | ast.AsyncFunctionDef
    ) -> list[tuple[Module, ast.Call]]:
        """The calls of a function or method that stand in the text as calls, and so in a statement.

        `Thread(target=f)` calls f too; what it gives is followed, but that is no place where `f(...)` stands.
        """
        calls = ((call.module, call.node) for call in self.functions.calls(module, function))
        return [(home, call) for home, call in calls if home.parent(call) is not None]

    def held(self, module: Module, node: ast.expr) -> HeldSet:
        """Everything an expression can hold."""
        return self.at(module, node, ())

    def at(self, module: Module, node: ast.expr, path: Path) -> HeldSet:
        """Everything that can be at a path within what an expression holds.

        Within a circle answers are partial; they are kept until the place where the circle was entered is
        answered, and asked anew afterwards.
        """
        exact = _EXACT if path[:1] != (None,) else _EXACT + 1  # whichever item of a list, and what is in it
        if len(path) > exact:
            path = (*path[:exact], *((None,) * (len(path) - exact)))
        key = (node, path)
        known = self._known.get(key)
        if known is not None:
            return known
        if key in self._partial:
            partial, cut = self._partial[key]
            self._cut = min(self._cut, cut)
            return partial
        depth = len(self._active)
        if key in self._active or depth > _DEEPEST or len(path) > _LONGEST:
            self._cut = min(self._cut, self._active.get(key, 0))
            return NOTHING
        outer, self._cut, before = self._cut, _FOREVER, len(self._partial)
        self._active[key] = depth
        try:
            result = self._at(module, node, path)
        finally:
            del self._active[key]
        if self._cut >= depth:
            self._known[key] = result
            while len(self._partial) > before:
                self._settle(*self._partial.popitem())
            self._cut = outer
        else:
            self._partial[key] = (result, self._cut)
            self._cut = min(outer, self._cut)
        return result

    def kept(self, known: dict[_Key, _Answer], key: _Key, work_out: Callable[[], _Answer]) -> _Answer:
        """An answer that others build on, kept for good unless a question it rests on is still open."""
        if key in known:
            return known[key]
        outer, self._cut = self._cut, _FOREVER
        found = work_out()
        if self._cut == _FOREVER:
            known[key] = found
        self._cut = min(outer, self._cut)
        return found

    def _settle(self, key: tuple[ast.expr, Path], answer: tuple[HeldSet, int]) -> None:
        """Keep a partial answer for good once it was found a second time: circles can be many."""
        self._tries[key] = self._tries.get(key, 0) + 1
        if self._tries[key] >= _TRIES:
            self._known[key] = answer[0]

    @property
    def asked(self) -> int:
        """How many questions have an answer."""
        return len(self._known)

    @property
    def depth(self) -> int:
        """How many questions are open."""
        return len(self._active)

    def cut(self, depth: int) -> None:
        """Say that an answer is partial as long as a question opened before `depth` is open."""
        self._cut = min(self._cut, depth - 1)

    def _at(self, module: Module, node: ast.expr, path: Path) -> HeldSet:
        self._questions += 1
        if self._questions > _MOST_QUESTIONS:
            raise too_entangled(self.shelf.paths)
        told = self.by_libraries.get(node)
        at = path[0] if path else None
        if told is not None and at in told.positions:
            return frozenset({DECLARED if told.is_certain else POSSIBLE})
        if told is not None and at in told.optimizers and isinstance(node, ast.Call):
            made = frozenset({PREPARED if told.is_certain else POSSIBLY_PREPARED})
            return made | self.calls.call(module, node, path)
        match node:
            case ast.Name():
                return self.variables.name(module, node, path)
            case ast.Call():
                return self.calls.call(module, node, path)
            case ast.Attribute():
                return self.attributes.attribute(module, node, path)
            case ast.IfExp():
                return self.at(module, node.body, path) | self.at(module, node.orelse, path)
            case ast.BoolOp():
                return NOTHING.union(*(self.at(module, v, path) for v in node.values))
            case ast.NamedExpr() | ast.Await():
                return self.at(module, node.value, path)
            case ast.Lambda():
                return NOTHING if path else frozenset({Defined(node, module)})
            case ast.Constant():
                # `model = None` before a branch says nothing about the branch.
                return NOTHING if node.value is None or path else frozenset({OTHER})
        return self.containers.display(module, node, path)
