"""What the code says outright about an object: annotations, `isinstance` tests, calls of FSDP1's static
methods."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

from codemods.analysis.class_questions import asks_for_classes, questions
from codemods.analysis.conditions import branches_before, leaves
from codemods.analysis.flow import reaching
from codemods.analysis.index import Index, Symbol
from codemods.analysis.meanings import Meanings
from codemods.analysis.module import Module, last_name
from codemods.torch_names import FSDP, FSDP_MODULE, is_torch_optimizer

_SHARDED = frozenset({FSDP, *FSDP_MODULE})
"""The classes of sharded models of both stacks."""
_OTHER_WRAPPERS = frozenset(
    {
        "torch.nn.parallel.DistributedDataParallel",
        "torch.nn.parallel.distributed.DistributedDataParallel",
        "torch.nn.DataParallel",
        "torch.nn.parallel.DataParallel",
    }
)
"""Classes of which no model that FSDP shards is: they wrap as a whole."""
_CAN_QUOTE = (ast.Constant, ast.Subscript, ast.BinOp)
_STATIC = frozenset(
    {
        "state_dict_type",
        "set_state_dict_type",
        "get_state_dict_type",
        "optim_state_dict",
        "optim_state_dict_to_load",
        "full_optim_state_dict",
        "sharded_optim_state_dict",
        "summon_full_params",
        "fsdp_modules",
    }
)


@dataclass(slots=True)
class Evidence:
    """Answers from single places, without following values.

    Attributes:
        naming: the modules that say FSDP.
    """

    index: Index
    naming: list[Module]
    _evidence: dict[tuple[str, ast.AST, str], list[ast.expr]] | None = field(default=None)

    def annotated(self, module: Module, annotation: ast.expr) -> bool:
        """Whether an annotation is FSDP1's class and nothing else (a union says only maybe)."""
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            try:
                annotation = ast.parse(annotation.value, mode="eval").body
            except SyntaxError:
                return False
            if isinstance(annotation, ast.Name):
                symbol = self.index.lookup(module, module.scope, annotation.id)
                return symbol is not None and symbol.name == FSDP
            return False
        symbol = self.index.resolve(module, annotation)
        return symbol is not None and symbol.name == FSDP

    def is_tested(self, module: Module, node: ast.expr) -> bool:
        """Whether a place is reached only where `isinstance(<the same name>, FSDP)` holds."""
        if not isinstance(node, ast.Name | ast.Attribute):
            return False
        text = ast.unparse(node)
        child: ast.AST = node
        for parent in module.ancestors(node):
            if isinstance(parent, ast.If | ast.IfExp):
                body = parent.body if isinstance(parent.body, list) else [parent.body]
                if any(child is part for part in body) and self._tests(module, parent.test, text):
                    return True
            elif isinstance(parent, ast.BoolOp) and isinstance(parent.op, ast.And):
                earlier = parent.values[: next(i for i, v in enumerate(parent.values) if v is child)]
                if any(self._tests(module, value, text) for value in earlier):
                    return True
            elif isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                break
            child = parent
        return self._is_left_unless(module, node, text)

    def _is_left_unless(self, module: Module, node: ast.expr, text: str) -> bool:
        """Whether `if not isinstance(<the same name>, FSDP): raise` stands before a place."""
        for branch in branches_before(module, node) if isinstance(node, ast.Name) else ():
            if not leaves(branch.body):
                continue
            match branch.test:
                case ast.UnaryOp(op=ast.Not(), operand=ast.Call(args=[subject, _]) as test):
                    if self._tests(module, test, text) and _is_same(module, node, subject):
                        return True
        return False

    def is_denied(self, module: Module, node: ast.expr) -> bool:
        """Whether a place is reached only where a question for a sharded model's class is answered by no.

        The rest of `if isinstance(x, FSDP): ... elif isinstance(x, DDP): ...`, for `x` and for `x.module`;
        also where a question for DDP's class is answered by yes. `match` asks the same.
        """
        while isinstance(node, ast.Attribute) and node.attr == "module":
            node = node.value
        if not isinstance(node, ast.Name | ast.Attribute):
            return False
        text = ast.unparse(node)
        return any(
            ast.unparse(subject) == text and _is_still(module, subject, node)
            for subject in self.denied(module, node)
        )

    def denied(self, module: Module, node: ast.AST) -> Iterator[ast.expr]:
        """What is no sharded model where a place is reached, by the questions that fail there."""
        if not asks_for_classes(module):
            return
        for subject, classes, holds in questions(module, node):
            symbols = [self.index.resolve(module, one) for one in classes]
            names = {symbol.name if symbol is not None else "" for symbol in symbols}
            if (names and names <= _OTHER_WRAPPERS) if holds else names & _SHARDED:
                yield subject

    def _tests(self, module: Module, test: ast.expr, text: str) -> bool:
        """Whether a condition implies that a name is an instance of FSDP1's class."""
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            return any(self._tests(module, value, text) for value in test.values)
        if not (isinstance(test, ast.Call) and isinstance(test.func, ast.Name) and len(test.args) == 2):
            return False
        if test.func.id != "isinstance" or ast.unparse(test.args[0]) != text:
            return False
        symbol = self.index.resolve(module, test.args[1])
        return symbol is not None and symbol.name == FSDP

    def evident(self, module: Module, node: ast.expr) -> list[ast.expr]:
        """What FSDP1's static methods are called on by the same name in the same function."""
        if not isinstance(node, ast.Name | ast.Attribute):
            return []
        if self._evidence is None:
            self._evidence = {}
            for home in self.naming:
                for call in home.calls():
                    subject = self._subject(home, call)
                    if subject is not None:
                        key = (home.path, home.scope_of(call).node, ast.unparse(subject))
                        self._evidence.setdefault(key, []).append(subject)
        subjects = self._evidence.get((module.path, module.scope_of(node).node, ast.unparse(node)), [])
        return [subject for subject in subjects if _is_same(module, node, subject)]

    def subjects(self, module: Module) -> list[ast.expr]:
        """What FSDP1's static methods are called on in a module."""
        found = (self._subject(module, call) for name in _STATIC for call in module.called(name))
        return [subject for subject in found if subject is not None]

    def _subject(self, module: Module, call: ast.Call) -> ast.expr | None:
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in _STATIC:
            return None
        symbol = self.index.resolve(module, call.func.value)
        if symbol is None or symbol.name != FSDP:
            return None
        for keyword in call.keywords:
            if keyword.arg in ("model", "module"):
                return keyword.value
        if call.func.attr == "optim_state_dict_to_load":
            return None  # before torch 2.1 the state dict came first
        return call.args[0] if call.args and isinstance(call.args[0], ast.Name | ast.Attribute) else None


def _is_same(module: Module, one: ast.expr, other: ast.expr) -> bool:
    """Whether a name can have the same value at two places: not where it is bound anew in between."""
    found = module.scope_of(one).lookup(one.id) if isinstance(one, ast.Name) else None
    if found is None:
        return True
    here, there = (set(reaching(module, *found, node)) for node in (one, other))
    return bool(here & there)


def _is_still(module: Module, test: ast.expr, node: ast.expr) -> bool:
    """Whether a name has the value at a place that a question above it was asked of."""
    text, start = ast.unparse(node), module.span(test).end
    own, stop = module.statement(node), module.span(node).start
    stores = (n for n in module.named(text.rpartition(".")[2]) if isinstance(n.ctx, ast.Store))
    return not any(
        ast.unparse(n) == text
        and start <= module.span(n).start < stop
        # `x = x.module` binds the name when its value is there.
        and not (isinstance(own, ast.Assign | ast.AnnAssign) and module.statement(n) is own)
        for n in stores
    )


OPTIMIZER_STEMS = (
    *("opt", "adam", "sgd", "lion", "lamb", "adafactor", "adagrad"),
    *("shampoo", "sophia", "prodigy", "muon"),
)
"""One of them is in every name that the next pattern knows."""
_OPTIMIZER_NAME = re.compile(
    r"(?:(?:optim|sgd|lion)\w*|opts?(?:_\w+)?|\w*(?:(?<!h)adam|adafactor|adagrad|shampoo|sophia|prodigy|muon)\w*"
    r"|\w*(?:optimizer|sgd|lamb))",
    re.IGNORECASE,
)
_OF_PARAMETERS = ("param", "group")
"""In the names of what an optimizer is given."""


def is_optimizer(symbol: Symbol | None, call: ast.Call) -> bool:
    """A class of `torch.optim`, or something that is called like an optimizer and is given parameters."""
    if symbol is not None and is_torch_optimizer(symbol.name):
        return True
    # Names first: few calls have such a name, and most have arguments to look through.
    if not any(map(names_optimizer, _words_of(call.func))):
        return False
    given = [*call.args, *(k.value for k in call.keywords)]
    first = [*call.args[:1], *(k.value for k in call.keywords if k.arg == "params")]
    if any(
        isinstance(n, ast.Attribute) and n.attr in ("parameters", "named_parameters")
        for a in given
        for n in ast.walk(a)
    ):
        return True
    # The name of an argument says little: `optimizer.add_param_group(group)` makes none.
    called = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    is_made = not called or called[0].isupper() or names_optimizer(called)
    return is_made and any(
        isinstance(a, ast.Name) and any(word in a.id.lower() for word in _OF_PARAMETERS) for a in first
    )


def optimizers_in(module: Module, meanings: Meanings) -> Iterator[ast.Call]:
    """The calls of a module that construct an optimizer."""
    for call, symbol in meanings.calls(module) if "optim" in module.text else ():
        if symbol.module is None and is_optimizer(symbol, call):
            yield call
    for word in filter(names_optimizer, module.attributes_and_names()):
        for named in module.named(word):
            child: ast.AST = named
            for parent in module.ancestors(named):
                if isinstance(parent, ast.stmt):
                    break
                if isinstance(parent, ast.Call) and parent.func is child and is_optimizer(None, parent):
                    yield parent
                child = parent


def called_optimizers(module: Module) -> Iterator[ast.Call]:
    """The calls that are given `m.parameters()` and whose results are called optimizers."""
    for given in module.called("parameters"):
        call, statement = module.parent(given), module.statement(given)
        is_all = isinstance(statement, ast.Assign) and statement.value is call
        if isinstance(call, ast.Call) and is_all and _is_called_optimizer(statement):
            yield call


def _is_called_optimizer(statement: ast.stmt) -> bool:
    """Whether what an assignment gives a name to is called an optimizer, and not parameters for one."""
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    word = last_name(target)
    return names_optimizer(word) and not any(part in word.lower() for part in _OF_PARAMETERS)


def _words_of(callee: ast.expr) -> Iterator[str]:
    """Every name in what is called."""
    while isinstance(callee, ast.Attribute):
        yield callee.attr
        callee = callee.value
    if isinstance(callee, ast.Name):
        yield callee.id
        return
    for node in ast.walk(callee):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


@cache
def names_optimizer(word: str) -> bool:
    """Whether a class or variable is called like an optimizer, of whatever library."""
    return _OPTIMIZER_NAME.fullmatch(word) is not None


def quoted_types(module: Module) -> Iterator[ast.Constant]:
    """The strings in annotations."""
    told: list[ast.expr | None] = [n.annotation for n in module.nodes(ast.arg) if isinstance(n, ast.arg)]
    told += [n.annotation for n in module.nodes(ast.AnnAssign) if isinstance(n, ast.AnnAssign)]
    for kind in (ast.FunctionDef, ast.AsyncFunctionDef):
        told += [
            n.returns for n in module.nodes(kind) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
    for annotation in told:
        for part in ast.walk(annotation) if isinstance(annotation, _CAN_QUOTE) else ():
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                yield part
