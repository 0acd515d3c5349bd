"""Where a mark goes on to from an expression: to what stands around it, to variables, attributes, results."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import partial

from codemods.analysis.containers import METHODS
from codemods.analysis.frames import PASS_THROUGH
from codemods.analysis.holding import Record, in_order
from codemods.analysis.module import Module
from codemods.analysis.parameter_lists import NAMES
from codemods.analysis.scopes import targets_of
from codemods.analysis.spread import Spread
from codemods.analysis.spread_given import Given
from codemods.analysis.spread_marks import (
    INSIDE,
    MODEL,
    PARAMETERS,
    RECORD,
    SAID,
    Family,
    Mark,
    Taker,
)
from codemods.analysis.spread_optimizers import follow_parameters

_PARTS = frozenset({"modules", "children", "named_modules", "named_children"})
_PLAIN = (
    ast.Tuple,
    ast.List,
    ast.Set,
    ast.Dict,
    ast.Starred,
    ast.BoolOp,
    ast.BinOp,
    ast.Await,
    ast.ListComp,
    ast.SetComp,
    ast.GeneratorExp,
    ast.DictComp,
)
"""What holds, or gives, what any of the expressions right in it does; conditions and keys count too."""


class Uses:
    """Hands marks on."""

    def __init__(self, spread: Spread) -> None:
        self._spread = spread
        self._links = spread.links
        self._given = Given(spread, self)
        self._ways: dict[ast.expr, tuple[Taker, ...]] = {}
        self._keys: dict[tuple[Module, str], bool] = {}

    def hand_on(self, module: Module, node: ast.expr, mark: Mark) -> None:
        """Send a mark on from an expression to all that gets its value."""
        parent = module.parent(node)
        if isinstance(mark, ast.ClassDef) and self._annotates(module, node, mark):
            return
        if mark is PARAMETERS:
            follow_parameters(self._spread, module, node)
        elif mark is SAID:
            if isinstance(parent, ast.Attribute) and parent.attr in _PARTS:
                self._to_call(module, parent, MODEL)
        elif isinstance(parent, ast.Attribute):
            self._to_attribute(module, parent, mark)
        elif isinstance(parent, ast.Call) and parent.func is node:
            self._called(module, parent, mark)
        elif parent is not None:
            ways = self._ways.get(node)
            if ways is None:
                ways = self._ways[node] = tuple(self._ways_on(module, node, parent))
            for way in ways:
                way(mark)

    def _ways_on(self, module: Module, node: ast.expr, parent: ast.AST) -> Iterator[Taker]:
        """Where every mark goes on to from an expression, whatever it is."""
        spread = self._spread
        match parent:
            case ast.Call():
                yield from self._given.ways(module, parent, node, node)
            case ast.keyword():
                call = module.parent(parent)
                if isinstance(call, ast.Call):
                    yield from self._given.ways(module, call, parent, node)
            case ast.Subscript() if parent.value is node and isinstance(parent.ctx, ast.Load):
                yield spread.adds(module, parent)
            case ast.IfExp() if parent.test is not node:
                yield spread.adds(module, parent)
            case ast.NamedExpr():
                yield from self.binds(module, [parent.target])
                yield spread.adds(module, parent)
            case ast.Lambda() if parent.body is node:
                yield lambda mark: spread.put_result(module, parent, mark)
            case ast.expr() if isinstance(parent, _PLAIN):
                yield spread.adds(module, parent)
            case _:
                yield from self._to_statement(module, node, parent)

    def _to_statement(self, module: Module, node: ast.expr, parent: ast.AST) -> Iterator[Taker]:
        match parent:
            case ast.Assign():
                yield from self.binds(module, parent.targets)
            case ast.AnnAssign() | ast.AugAssign() if parent.value is node:
                yield from self.binds(module, [parent.target])
            case ast.For() | ast.AsyncFor() | ast.comprehension() if parent.iter is node:
                yield from self.binds(module, [parent.target])
            case ast.withitem(optional_vars=ast.expr() as target):
                yield from self._enters(module, target)
            case ast.Return() | ast.Yield() | ast.YieldFrom():
                function = module.function(node)
                if function is not None:
                    yield partial(self._spread.put_result, module, function)
            case ast.arguments():
                yield from self._default(module, node, parent)

    def binds(self, module: Module, targets: Iterable[ast.expr]) -> Iterator[Taker]:
        """The ways into what is assigned to."""
        for target in (one for whole in targets for one in targets_of(whole)):
            container: ast.expr = target
            while isinstance(container, ast.Subscript):
                container = container.value
            if isinstance(container, ast.Name):
                yield from self._to_variable(module, container)
            elif isinstance(container, ast.Attribute):
                yield from self.stores(module, container.value, container.attr)

    def _to_variable(self, module: Module, name: ast.Name) -> Iterator[Taker]:
        """Into the variable that a name means, which can be another module's."""
        found = module.scope_of(name).lookup(name.id)
        if found is not None:
            yield partial(self._spread.put_variable, module, found[0], name.id)
            scope = self._links.variables.variable(module, name)
            if scope is not None and scope is not found[0] and isinstance(scope.node, ast.Module):
                yield from self._into_other_module(module, name.id)

    def _into_other_module(self, module: Module, name: str) -> Iterator[Taker]:
        """Something is put into an imported container: it is there for its own module too."""
        found = module.scope.lookup(name)
        for binding in found[1] if found is not None else ():
            home = self._links.index.holder(module, binding.target) if binding.target else None
            if home is not None:
                last = binding.target.rpartition(".")[2]
                at = home.scope.lookup(last)
                if at is not None:
                    yield partial(self._spread.put_variable, home, at[0], last)

    def stores(self, module: Module, holder: ast.expr, name: str) -> Iterator[Taker]:
        """The ways into an attribute of what an expression holds."""
        spread = self._spread
        if isinstance(holder, ast.Name) and holder.id in ("self", "cls"):
            owner = module.class_of(holder)
            if owner is not None:
                yield partial(spread.put_attribute, spread.family(owner, module), name)
            return
        symbol = self._links.index.resolve(module, holder)
        if symbol is not None and symbol.module is not None and isinstance(symbol.node, ast.Module):
            yield partial(spread.put_variable, symbol.module, symbol.module.scope, name)
        owners: dict[Family | str, None] = {}
        found = self._links.held(module, holder)
        if any(isinstance(held, Record) for held in found):
            owners[RECORD] = None
        for held in in_order(found):
            if isinstance(held.node, ast.ClassDef):
                owners[spread.family(held.node, held.module)] = None
        yield from (partial(spread.put_attribute, one, name) for one in owners)
        yield from self._same_text(module, holder, name)

    def _same_text(self, module: Module, holder: ast.expr, name: str) -> Iterator[Taker]:
        """`a.b.name` as if it were a variable, in the same module and the same family of classes."""
        text, homes = ast.unparse(holder), [module]
        owner = module.class_of(holder)
        if owner is not None and text.startswith("self."):
            homes += [home for _, home in self._spread.family(owner, module).classes]
        for home in dict.fromkeys(homes):
            for read in home.named(name):
                is_read = isinstance(read, ast.Attribute) and isinstance(read.ctx, ast.Load)
                if isinstance(read, ast.Attribute) and is_read and ast.unparse(read.value) == text:
                    yield self._spread.adds(home, read)

    def _enters(self, module: Module, target: ast.expr) -> Iterator[Taker]:
        """Into what `with` binds: what is entered, and what its `__enter__` gives."""
        spread, ways = self._spread, tuple(self.binds(module, [target]))

        def bind(given: Mark) -> None:
            for way in ways:
                way(given)

        def take_entered(method: Mark) -> None:
            if isinstance(method, ast.AST):
                spread.take_result(method, bind)

        def enter(mark: Mark) -> None:
            if isinstance(mark, Family):
                for name in ("__enter__", "__aenter__"):
                    spread.take_attribute(mark, name, take_entered)

        yield from ways
        yield enter

    def _default(self, module: Module, node: ast.expr, arguments: ast.arguments) -> Iterator[Taker]:
        function = module.parent(arguments)
        positional = [*arguments.posonlyargs, *arguments.args]
        pairs = [
            *zip(reversed(positional), reversed(arguments.defaults), strict=False),
            *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
        ]
        for parameter, default in pairs:
            if default is node and function is not None:
                scope = module.table.scopes[function]
                yield partial(self._spread.put_variable, module, scope, parameter.arg)

    def _to_attribute(self, module: Module, attribute: ast.Attribute, mark: Mark) -> None:
        spread, name = self._spread, attribute.attr
        if isinstance(attribute.ctx, ast.Load):
            if name in INSIDE or self._may_be_key(module, name):
                spread.add(module, attribute, mark)
            if isinstance(mark, Family):
                spread.take_attribute(mark, name, lambda found: spread.add(module, attribute, found))
            elif isinstance(mark, ast.ClassDef):
                family = spread.objects(mark, module)
                spread.take_attribute(family, name, lambda found: spread.add(module, attribute, found))
            elif mark is RECORD:
                for any_of in (name, ""):
                    spread.take_attribute(RECORD, any_of, lambda found: spread.add(module, attribute, found))
        if name in PASS_THROUGH or name in METHODS or (mark is MODEL and name in _PARTS):
            self._to_call(module, attribute, mark)
        elif mark is MODEL and name in NAMES:
            self._to_call(module, attribute, PARAMETERS)

    def _to_call(self, module: Module, function: ast.expr, mark: Mark) -> None:
        call = module.parent(function)
        if isinstance(call, ast.Call) and call.func is function:
            self._spread.add(module, call, mark)

    def _called(self, module: Module, call: ast.Call, mark: Mark) -> None:
        """What is marked is called."""
        spread = self._spread

        def give(given: Mark) -> None:
            spread.add(module, call, given)

        match mark:
            case ast.ClassDef():
                give(spread.objects(mark, module))
            case Family():
                spread.take_attribute(
                    mark,
                    "__call__",
                    lambda m: spread.take_result(m, give) if isinstance(m, ast.AST) else None,
                )
            case ast.Call():  # `functools.partial(FSDP, ...)`
                give(MODEL)
            case ast.AST():
                spread.take_result(mark, give)

    def _annotates(self, module: Module, node: ast.expr, owner: ast.ClassDef) -> bool:
        """Whether a class is named in an annotation: what is annotated may hold objects of it."""
        child: ast.AST = node
        for parent in module.ancestors(node):
            match parent:
                case ast.arg() if parent.annotation is child:
                    function = module.parent(module.parent(parent) or parent)
                    if function is not None:
                        scope = module.table.scopes[function]
                        self._spread.put_variable(module, scope, parent.arg, self._made(module, owner))
                    return True
                case ast.AnnAssign() if parent.annotation is child:
                    for way in self.binds(module, [parent.target]):
                        way(self._made(module, owner))
                    return True
                case ast.FunctionDef() | ast.AsyncFunctionDef() if parent.returns is child:
                    self._spread.put_result(module, parent, self._made(module, owner))
                    return True
                case ast.stmt():
                    break
            child = parent
        return isinstance(node, ast.Constant)

    def _made(self, module: Module, owner: ast.ClassDef) -> Mark:
        return self._spread.objects(owner, module)

    def _may_be_key(self, module: Module, name: str) -> bool:
        """Whether an attribute's name can be a key of a `ModuleDict`: `nets.first` is `nets["first"]`."""
        known = self._keys.get((module, name))
        if known is None:
            text = module.text
            known = self._keys[module, name] = "ModuleDict" in text and any(
                key in text for key in (f'"{name}"', f"'{name}'", f"{name}=")
            )
        return known
