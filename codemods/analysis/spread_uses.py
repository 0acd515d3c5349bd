"""Where a mark goes on to from an expression: to what stands around it, to variables, attributes, results."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from codemods.analysis.containers import METHODS
from codemods.analysis.frames import PASS_THROUGH
from codemods.analysis.holding import Defined, Instance, Record
from codemods.analysis.module import Module
from codemods.analysis.parameter_lists import NAMES
from codemods.analysis.scopes import targets_of
from codemods.analysis.spread import Spread
from codemods.analysis.spread_given import Given
from codemods.analysis.spread_marks import INSIDE, MODEL, OPTIMIZER, PARAMETERS, RECORD, SAID, Family, Mark

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
                self._given.give(module, parent, node, node, mark)
            case ast.keyword():
                call = module.parent(parent)
                if isinstance(call, ast.Call):
                    self._given.give(module, call, parent, node, mark)
            case ast.Subscript() if parent.value is node and isinstance(parent.ctx, ast.Load):
                self._spread.add(module, parent, mark)
            case ast.IfExp() if parent.test is not node:
                self._spread.add(module, parent, mark)
            case ast.NamedExpr():
                self.bind(module, [parent.target], mark)
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
                self.bind(module, parent.targets, mark)
            case ast.AnnAssign() | ast.AugAssign() if parent.value is node:
                self.bind(module, [parent.target], mark)
            case ast.For() | ast.AsyncFor() | ast.comprehension() if parent.iter is node:
                self.bind(module, [parent.target], mark)
            case ast.withitem():
                self._enter(module, node, parent, mark)
            case ast.Return() | ast.Yield() | ast.YieldFrom():
                function = module.function(node)
                if function is not None:
                    self._spread.put_result(module, function, mark)
            case ast.arguments():
                self._default(module, node, parent, mark)

    def bind(self, module: Module, targets: Iterable[ast.expr], mark: Mark) -> None:
        for target in (one for whole in targets for one in targets_of(whole)):
            container: ast.expr = target
            while isinstance(container, ast.Subscript):
                container = container.value
            if isinstance(container, ast.Name):
                self._to_variable(module, container, mark)
            elif isinstance(container, ast.Attribute):
                self.store(module, container.value, container.attr, mark)

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

    def store(self, module: Module, holder: ast.expr, name: str, mark: Mark) -> None:
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
                is_read = isinstance(read, ast.Attribute) and isinstance(read.ctx, ast.Load)
                if isinstance(read, ast.Attribute) and is_read and ast.unparse(read.value) == text:
                    self._spread.add(home, read, mark)

    def _enter(self, module: Module, node: ast.expr, item: ast.withitem, mark: Mark) -> None:
        if item.optional_vars is None:
            return
        targets = [item.optional_vars]
        self.bind(module, targets, mark)
        if isinstance(mark, Family):
            for name in ("__enter__", "__aenter__"):
                self._spread.take_attribute(
                    mark,
                    name,
                    lambda method: (
                        self._spread.take_result(method, lambda given: self.bind(module, targets, given))
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
            if name in INSIDE:
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
                    self.bind(module, [parent.target], self._made(module, owner))
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
            is_argument = isinstance(parent, ast.Call) and parent.func is not child
            if isinstance(parent, ast.Call) and is_argument and self._links.builds_optimizer(module, parent):
                self._spread.add(module, parent, OPTIMIZER)
            if isinstance(parent, ast.Return | ast.Yield | ast.YieldFrom):
                function = module.function(parent)
                if function is not None and "param" in function.name:
                    self._spread.put_result(module, function, PARAMETERS)
            for target in (one for whole in _bound_by(parent) for one in targets_of(whole)):
                if isinstance(target, ast.Name):
                    found = module.scope_of(target).lookup(target.id)
                    if found is not None:
                        self._spread.put_variable(module, found[0], target.id, PARAMETERS)
            if isinstance(parent, ast.stmt):
                return
            child = parent


def _bound_by(node: ast.AST) -> list[ast.expr]:
    """The targets that a statement, or a part of one, binds."""
    match node:
        case ast.Assign():
            return node.targets
        case ast.AnnAssign() | ast.AugAssign() | ast.NamedExpr() | ast.For() | ast.AsyncFor():
            return [node.target]
        case ast.comprehension():
            return [node.target]
        case ast.withitem(optional_vars=ast.expr() as target):
            return [target]
    return []
