"""Where a mark goes on to from an expression: to what stands around it, to variables, attributes, results."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from codemods.analysis.calls import PREPARED, UNWRAPPED
from codemods.analysis.containers import KEEPING, METHODS
from codemods.analysis.frames import PASS_THROUGH
from codemods.analysis.holding import Defined, Instance, Record
from codemods.analysis.indirect_calls import handed_on, meant_by
from codemods.analysis.module import Module
from codemods.analysis.parameter_lists import NAMES
from codemods.analysis.scopes import FunctionNode, targets_of
from codemods.analysis.shelf import Before
from codemods.analysis.spread import (
    MODEL,
    OPTIMIZER,
    PARAMETERS,
    RECORD,
    SAID,
    Family,
    Mark,
    Spread,
)
from codemods.analysis.stores import MANY, ONE

_INSIDE = frozenset({"module", "_fsdp_wrapped_module", "_orig_mod"})
_PARTS = frozenset({"modules", "children", "named_modules", "named_children"})
_FILLS = ONE | MANY | {"insert", "setdefault"}
_GIVES_ARGUMENTS = KEEPING | PREPARED | {"dict", "enumerate", "zip", "cast"}
_GIVES_ARGUMENT = {
    **dict.fromkeys(UNWRAPPED | {"compile", "copy", "partial", "replace", "next"}, 0),
    **{"get": 1, "pop": 1, "setdefault": 1, "getattr": 2},
}
"""Calls that give back their arguments, or one of them."""
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
        self._keeps: dict[str, bool] = {}

    def hand_on(self, module: Module, node: ast.expr, mark: Mark) -> None:
        """Send a mark on from an expression to all that gets its value."""
        parent = module.parent(node)
        if isinstance(mark, ast.ClassDef) and self._annotates(module, node, mark):
            return
        if mark is PARAMETERS:
            self._parameters(module, node)
            return
        if mark is SAID:
            if isinstance(parent, ast.Attribute) and parent.attr in _PARTS:
                self._to_call(module, parent, MODEL)
            return
        match parent:
            case ast.Attribute():
                self._to_attribute(module, parent, mark)
            case ast.Call() if parent.func is node:
                self._called(module, parent, mark)
            case ast.Call():
                self._given(module, parent, node, node, mark)
            case ast.keyword():
                call = module.parent(parent)
                if isinstance(call, ast.Call):
                    self._given(module, call, parent, node, mark)
            case ast.Subscript() if parent.value is node and isinstance(parent.ctx, ast.Load):
                self._spread.add(module, parent, mark)
            case ast.IfExp() if parent.test is not node:
                self._spread.add(module, parent, mark)
            case ast.NamedExpr():
                self._bind(module, [parent.target], mark)
                self._spread.add(module, parent, mark)
            case ast.Lambda() if parent.body is node:
                self._spread.put_result(module, parent, mark)
            case _ if isinstance(parent, _PLAIN):
                self._spread.add(module, parent, mark)
            case None:
                return
            case _:
                self._to_statement(module, node, parent, mark)

    def _to_statement(self, module: Module, node: ast.expr, parent: ast.AST, mark: Mark) -> None:
        match parent:
            case ast.Assign():
                self._bind(module, parent.targets, mark)
            case ast.AnnAssign() | ast.AugAssign() if parent.value is node:
                self._bind(module, [parent.target], mark)
            case ast.For() | ast.AsyncFor() | ast.comprehension() if parent.iter is node:
                self._bind(module, [parent.target], mark)
            case ast.withitem():
                self._enter(module, node, parent, mark)
            case ast.Return() | ast.Yield() | ast.YieldFrom():
                function = module.function(node)
                if function is not None:
                    self._spread.put_result(module, function, mark)
            case ast.arguments():
                self._default(module, node, parent, mark)

    def _bind(self, module: Module, targets: Iterable[ast.expr], mark: Mark) -> None:
        for target in (one for whole in targets for one in targets_of(whole)):
            container = target
            while isinstance(container, ast.Subscript):
                container = container.value
            if isinstance(container, ast.Name):
                self._to_variable(module, container, mark)
            elif isinstance(container, ast.Attribute):
                self._store(module, container.value, container.attr, mark)

    def _to_variable(self, module: Module, name: ast.Name, mark: Mark) -> None:
        """Into the variable that a name means, which can be another module's."""
        found = module.scope_of(name).lookup(name.id)
        if found is not None:
            self._spread.put_variable(module, found[0], name.id, mark)
            scope = self._links.variables.variable(module, name)
            if scope is not None and scope is not found[0] and isinstance(scope.node, ast.Module):
                self._into_other_module(module, name.id, mark)

    def _into_other_module(self, module: Module, name: str, mark: Mark) -> None:
        """Something is put into an imported container: it is there for its own module too."""
        found = module.scope.lookup(name)
        for binding in found[1] if found is not None else ():
            home = self._links.index.holder(module, binding.target) if binding.target else None
            if home is not None:
                last = binding.target.rpartition(".")[2]
                at = home.scope.lookup(last)
                if at is not None:
                    self._spread.put_variable(home, at[0], last, mark)

    def _store(self, module: Module, holder: ast.expr, name: str, mark: Mark) -> None:
        """Into an attribute of what an expression holds."""
        spread = self._spread
        if isinstance(holder, ast.Name) and holder.id in ("self", "cls"):
            owner = module.class_of(holder)
            if owner is not None:
                spread.put_attribute(spread.family(owner, module), name, mark)
            return
        symbol = self._links.index.resolve(module, holder)
        if symbol is not None and symbol.module is not None and isinstance(symbol.node, ast.Module):
            spread.put_variable(symbol.module, symbol.module.scope, name, mark)
        for held in self._links.held(module, holder):
            if isinstance(held, Record):
                spread.put_attribute(RECORD, name, mark)
            elif isinstance(held, Instance | Defined) and isinstance(held.node, ast.ClassDef):
                spread.put_attribute(spread.family(held.node, held.module), name, mark)
        self._same_text(module, holder, name, mark)

    def _same_text(self, module: Module, holder: ast.expr, name: str, mark: Mark) -> None:
        """`a.b.name` as if it were a variable, in the same module and the same family of classes."""
        text, homes = ast.unparse(holder), [module]
        owner = module.class_of(holder)
        if owner is not None and text.startswith("self."):
            homes += [home for _, home in self._spread.family(owner, module).classes]
        for home in dict.fromkeys(homes):
            for read in home.named(name):
                if isinstance(read, ast.Attribute) and isinstance(read.ctx, ast.Load):
                    if ast.unparse(read.value) == text:
                        self._spread.add(home, read, mark)

    def _enter(self, module: Module, node: ast.expr, item: ast.withitem, mark: Mark) -> None:
        if item.optional_vars is None:
            return
        targets = [item.optional_vars]
        self._bind(module, targets, mark)
        if isinstance(mark, Family):
            for name in ("__enter__", "__aenter__"):
                self._spread.take_attribute(
                    mark,
                    name,
                    lambda method: (
                        self._spread.take_result(method, lambda given: self._bind(module, targets, given))
                        if isinstance(method, ast.AST)
                        else None
                    ),
                )

    def _default(self, module: Module, node: ast.expr, arguments: ast.arguments, mark: Mark) -> None:
        function = module.parent(arguments)
        positional = [*arguments.posonlyargs, *arguments.args]
        pairs = [
            *zip(reversed(positional), reversed(arguments.defaults), strict=False),
            *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
        ]
        for parameter, default in pairs:
            if default is node and function is not None:
                self._spread.put_variable(module, module.table.scopes[function], parameter.arg, mark)

    def _to_attribute(self, module: Module, attribute: ast.Attribute, mark: Mark) -> None:
        spread, name = self._spread, attribute.attr
        if isinstance(attribute.ctx, ast.Load):
            if name in _INSIDE:
                spread.add(module, attribute, mark)
            if isinstance(mark, Family):
                spread.take_attribute(mark, name, lambda found: spread.add(module, attribute, found))
            elif isinstance(mark, ast.ClassDef):
                family = spread.objects(mark, module)
                spread.take_attribute(family, name, lambda found: spread.add(module, attribute, found))
            elif mark is RECORD:
                for any_of in (name, ""):
                    spread.take_attribute(RECORD, any_of, lambda found: spread.add(module, attribute, found))
        if name in PASS_THROUGH or name in METHODS:
            self._to_call(module, attribute, mark)
        elif mark is MODEL and name in _PARTS:
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

    def _given(self, module: Module, call: ast.Call, place: ast.AST, node: ast.expr, mark: Mark) -> None:
        """What is marked is an argument."""
        spread, function = self._spread, call.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        at = _GIVES_ARGUMENT.get(name)
        if name in _GIVES_ARGUMENTS or (at is not None and call.args[at : at + 1] == [node]):
            spread.add(module, call, mark)
        if name == "getattr" and len(call.args) > 1 and call.args[0] is node:
            self._asked_for(module, call, mark)
        if name == "setattr" and len(call.args) == 3 and isinstance(call.args[1], ast.Constant):
            if call.args[2] is node:
                self._store(module, call.args[0], str(call.args[1].value), mark)
        if isinstance(function, ast.Attribute) and name in _FILLS:
            self._bind(module, [function.value], mark)
        if name == "replace" and isinstance(place, ast.keyword) and place.arg is not None:
            self._replaced(module, call, place.arg, mark)
        self._to_parameters(module, call, place, node, mark)

    def _asked_for(self, module: Module, call: ast.Call, mark: Mark) -> None:
        name = call.args[1].value if isinstance(call.args[1], ast.Constant) else None
        if not isinstance(name, str):
            return
        spread = self._spread
        owner = spread.objects(mark, module) if isinstance(mark, ast.ClassDef) else mark
        if name in _INSIDE:
            spread.add(module, call, mark)
        if isinstance(owner, Family):
            spread.take_attribute(owner, name, lambda found: spread.add(module, call, found))
        elif owner is RECORD:
            for any_of in (name, ""):
                spread.take_attribute(RECORD, any_of, lambda found: spread.add(module, call, found))

    def _replaced(self, module: Module, call: ast.Call, name: str, mark: Mark) -> None:
        for held in self._links.held(module, call.args[0]) if call.args else ():
            if isinstance(held, Instance):
                self._spread.put_attribute(self._spread.family(held.node, held.module), name, mark)

    def _to_parameters(
        self, module: Module, call: ast.Call, place: ast.AST, node: ast.expr, mark: Mark
    ) -> None:
        from codemods.analysis.spread_arguments import given_functions

        symbol = self._links.index.resolve(module, call.func)
        if symbol is not None and symbol.module is None:
            if symbol.name in ("types.SimpleNamespace", "argparse.Namespace"):
                self._record(module, call, place, mark)
        elif symbol is not None and isinstance(symbol.node, ast.ClassDef) and symbol.module is not None:
            self._construct(module, call, place, symbol.node, symbol.module, mark)
        elif symbol is None and isinstance(call.func, ast.Name) and self._is_record(module, call.func):
            self._record(module, call, place, mark)
            self._spread.add(module, call, mark)
        for home, function, bound in given_functions(self._links, module, call):
            self._to_parameter(home, function, call, place, mark, bound=bound)
        for function_node, arguments, keywords in handed_on(call):
            given = [*arguments, *(k.value for k in keywords)]
            is_inside = isinstance(place, ast.keyword) and place.arg in ("args", "kwargs")
            if is_inside or any(one is node or getattr(one, "value", None) is node for one in given):
                self._to_every_parameter(module, function_node, mark)
        if symbol is None and isinstance(call.func, ast.Attribute) and self._is_kept(call.func.attr):
            self._spread.add(module, call, mark)  # what is kept there may give its argument back

    def _is_kept(self, name: str) -> bool:
        """Whether an attribute of that name is assigned somewhere, so that calling it can run any function."""
        if name not in self._keeps:
            where = self._links.shelf.where
            self._keeps[name] = bool(
                where(name, rb"\s*(?::[^=\n]*)?=(?!=)", Before.A_DOT)
                or where(name, rb"[^=\n]*=(?!=)", before=rb"(?:^|\n)[ \t]+")
                or where(name, rb"[\'\"]", before=rb"\bsetattr\s*\([^\'\"]*[\'\"]")
            )
        return self._keeps[name]

    def _is_record(self, module: Module, name: ast.Name) -> bool:
        found = module.scope_of(name).lookup(name.id)
        return any(
            isinstance(b.value, ast.Call) and ast.unparse(b.value.func).endswith("namedtuple")
            for b in (found[1] if found is not None else ())
        )

    def _record(self, module: Module, call: ast.Call, place: ast.AST, mark: Mark) -> None:
        spread = self._spread
        spread.add(module, call, RECORD)
        if isinstance(place, ast.keyword) and place.arg is not None:
            spread.put_attribute(RECORD, place.arg, mark)
            return
        # By position, or out of `**`: any attribute of such an object.
        spread.put_attribute(RECORD, "", mark)

    def _construct(
        self, module: Module, call: ast.Call, place: ast.AST, owner: ast.ClassDef, home: Module, mark: Mark
    ) -> None:
        """Fields of a dataclass or named tuple."""
        spread, family = self._spread, self._spread.family(owner, home)
        fields = self._links.classes.fields(owner, home)
        if isinstance(place, ast.keyword) and place.arg is not None:
            names = [place.arg] if place.arg in fields else []
        else:
            names = fields
        for name in names:
            spread.put_attribute(family, name, mark)
        if self._links.classes.is_named_tuple(owner, home):
            spread.add(module, call, mark)

    def _to_parameter(
        self,
        home: Module,
        function: FunctionNode,
        call: ast.Call,
        place: ast.AST,
        mark: Mark,
        *,
        bound: bool,
    ) -> None:
        for name in _parameters(function, call, place, bound=bound):
            self._spread.put_variable(home, home.table.scopes[function], name, mark)

    def _to_every_parameter(self, module: Module, function: ast.expr, mark: Mark) -> None:
        definition = meant_by(self._links.index, self._links.classes, module, function)
        home, node = definition if definition is not None else (module, None)
        if isinstance(node, ast.ClassDef):
            self._construct(module, ast.Call(function, [], []), node, node, home, mark)
            methods = self._links.classes.methods(Instance(node, home), "__init__")
            home, node = methods[0] if methods else (home, None)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for parameter in _all_parameters(node):
                self._spread.put_variable(home, home.table.scopes[node], parameter, mark)

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
                    self._bind(module, [parent.target], self._made(module, owner))
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

    def _parameters(self, module: Module, node: ast.expr) -> None:
        """Parameters go into optimizers, through anything written around them and through variables."""
        child: ast.AST = node
        for parent in module.ancestors(node):
            if isinstance(parent, ast.Call) and parent.func is not child:
                if self._links.builds_optimizer(module, parent):
                    self._spread.add(module, parent, OPTIMIZER)
            if isinstance(parent, ast.Return | ast.Yield | ast.YieldFrom):
                function = module.function(parent)
                if function is not None and "param" in function.name:
                    self._spread.put_result(module, function, PARAMETERS)
            targets: list[ast.expr] = []
            if isinstance(parent, ast.Assign):
                targets = parent.targets
            elif isinstance(parent, ast.AnnAssign | ast.AugAssign | ast.NamedExpr | ast.For | ast.AsyncFor):
                targets = [parent.target]
            elif isinstance(parent, ast.comprehension):
                targets = [parent.target]
            elif isinstance(parent, ast.withitem) and parent.optional_vars is not None:
                targets = [parent.optional_vars]
            for target in (one for whole in targets for one in targets_of(whole)):
                if isinstance(target, ast.Name):
                    found = module.scope_of(target).lookup(target.id)
                    if found is not None:
                        self._spread.put_variable(module, found[0], target.id, PARAMETERS)
            if isinstance(parent, ast.stmt):
                return
            child = parent


def _all_parameters(function: FunctionNode) -> Iterator[str]:
    arguments = function.args
    for parameter in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        yield parameter.arg
    for extra in (arguments.vararg, arguments.kwarg):
        if extra is not None:
            yield extra.arg


def _parameters(function: FunctionNode, call: ast.Call, place: ast.AST, *, bound: bool) -> Iterator[str]:
    """The parameters that an argument of a call may go to."""
    arguments = function.args
    positional = [a.arg for a in (*arguments.posonlyargs, *arguments.args)][bound:]
    named = {*positional, *(a.arg for a in arguments.kwonlyargs)}
    if isinstance(place, ast.keyword):
        if place.arg is None:
            yield from _all_parameters(function)
        elif place.arg in named:
            yield place.arg
        elif arguments.kwarg is not None:
            yield arguments.kwarg.arg
        return
    at = next((i for i, argument in enumerate(call.args) if argument is place), 0)
    if any(isinstance(a, ast.Starred) for a in call.args[: at + 1]):
        yield from (
            positional[min(at, len(positional)) :] if not isinstance(place, ast.Starred) else positional
        )
    elif at < len(positional):
        yield positional[at]
    if arguments.vararg is not None and (at >= len(positional) or isinstance(place, ast.Starred)):
        yield arguments.vararg.arg
