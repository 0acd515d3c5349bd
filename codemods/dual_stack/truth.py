"""What a condition comes to once nothing is FSDP1 any more and FSDP1's settings mean FSDP2.

`cfg.strategy == "fsdp"` is False, since that value now does what `"fsdp2"` did; `cfg.strategy == "fsdp2"`
becomes `cfg.strategy in ("fsdp", "fsdp2")`. `isinstance(x, FSDP)` is False where the FSDP2 case is asked for
beside it; `fsdp_version(x) == 1` is False where the function `fsdp_version` then has no way to return 1.
Elsewhere `isinstance(x, FSDP)` asks whether x is sharded: that question stays, and is for FSDP2 to answer.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from codemods.analysis.class_questions import classes_of
from codemods.analysis.module import Module
from codemods.dual_stack.beside import is_asked_beside, is_fsdp1_class, is_fsdp2_class, without
from codemods.dual_stack.choices import Choices, constant_key
from codemods.dual_stack.fold import UNKNOWN, Fold
from codemods.dual_stack.marks import Stack
from codemods.dual_stack.pure import does_more
from codemods.dual_stack.results import Results, among, call_behind
from codemods.dual_stack.settings import chosen
from codemods.model import Hole, Part, Span
from codemods.project import Project

_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
_LOOSE = (ast.BoolOp, ast.IfExp, ast.Lambda, ast.NamedExpr)


@dataclass(slots=True)
class Truth:
    """Folds conditions of a project."""

    project: Project
    choices: Choices
    _folded: dict[ast.expr, Fold] = field(default_factory=dict)
    _results: Results = field(init=False)

    def __post_init__(self) -> None:
        self._results = Results(self.project, self.fold)

    def fold(self, module: Module, node: ast.expr) -> Fold:
        """What an expression comes to as a condition."""
        if node not in self._folded:
            self._folded[node] = self._fold(module, node)
        return self._folded[node]

    def _fold(self, module: Module, node: ast.expr) -> Fold:
        match node:
            case ast.Constant(value=bool(value)):
                return Fold(value)
            case ast.UnaryOp(op=ast.Not()):
                return self._negated(module, node)
            case ast.BoolOp():
                return self._joined(module, node)
            case ast.Compare():
                return self._compared(module, node)
            case ast.Call(func=ast.Name(id="isinstance"), args=[_, classes]):
                return self._asked(module, node, classes)
            case ast.Call(func=ast.Name(id="any"), args=[ast.GeneratorExp(elt=element)]):
                inner = self.fold(module, element)
                return Fold(False) if inner.value is False else UNKNOWN
            case ast.Call(func=ast.Name() | ast.Attribute()):
                results = self._results.of_call(module, node)
                if results is not None and len(results) == 1 and all(r in (True, False) for r in results):
                    (only,) = results
                    return Fold(only) if isinstance(only, bool) else UNKNOWN
        return UNKNOWN

    def _negated(self, module: Module, node: ast.UnaryOp) -> Fold:
        inner = self.fold(module, node.operand)
        if inner.value is not None:
            return Fold(not inner.value, is_outside=inner.is_outside)
        if inner.code is None:
            return UNKNOWN
        if isinstance(node.operand, ast.Compare):
            return Fold(code=("not (", *inner.code, ")"))
        return Fold(code=("not ", *inner.code))

    def _joined(self, module: Module, node: ast.BoolOp) -> Fold:
        absorbing = isinstance(node.op, ast.Or)
        folds = [self.fold(module, value) for value in node.values]
        outside = any(fold.is_outside for fold in folds)
        if not any(fold.is_known for fold in folds) or any(map(does_more, node.values)):
            return UNKNOWN
        if any(fold.value is absorbing for fold in folds):
            return Fold(absorbing, is_outside=outside, by_setting=any(f.by_setting for f in folds))
        kept = [(v, f) for v, f in zip(node.values, folds, strict=True) if f.value is None]
        if not kept:
            return Fold(not absorbing, is_outside=outside)
        word = " or " if absorbing else " and "
        if len(kept) == len(folds):
            return self._edited(module, node, folds)
        pieces: list[Part] = []
        for position, (value, fold) in enumerate(kept):
            pieces += [word] if position else []
            text = fold.code if fold.code is not None else (Hole(module.span(value)),)
            needs = len(kept) > 1 and isinstance(value, _LOOSE)
            pieces += ["(", *text, ")"] if needs else list(text)
        return Fold(code=tuple(pieces), is_outside=outside)

    def _edited(self, module: Module, node: ast.BoolOp, folds: list[Fold]) -> Fold:
        """The expression with some operands' texts new, the rest of its text kept."""
        span = module.span(node)
        parts: list[Part | None] = []
        position = span.start
        for value, fold in zip(node.values, folds, strict=True):
            if fold.code is None:
                continue
            inner = module.span(value)
            parts += [_hole(position, inner.start), *fold.code]
            position = inner.end
        parts.append(_hole(position, span.end))
        return Fold(code=tuple(p for p in parts if p is not None))

    def _compared(self, module: Module, node: ast.Compare) -> Fold:
        if len(node.ops) != 1:
            return UNKNOWN
        left, op, right = node.left, node.ops[0], node.comparators[0]
        is_exact = isinstance(op, ast.Is | ast.IsNot | ast.Eq | ast.NotEq)
        if is_exact and is_fsdp1_class(self.project, module, right):
            if _is_type_of(left) and is_asked_beside(self.project, module, node):
                return Fold(isinstance(op, ast.IsNot | ast.NotEq))
            return UNKNOWN
        results = self._results.of_call(module, call_behind(module, left))
        if results is not None:
            known = among(results, op, right)
            return Fold(known) if known is not None else UNKNOWN
        for subject, value in ((left, right), (right, left)):
            if isinstance(op, ast.In | ast.NotIn) and value is left:
                continue
            for pair in self.choices.of(subject):
                folded = chosen(module, pair, subject, op, value)
                if folded is not None:
                    return folded
        return UNKNOWN

    def _asked(self, module: Module, call: ast.expr, classes: ast.expr) -> Fold:
        elements = list(classes_of(classes))
        gone = [e for e in elements if is_fsdp1_class(self.project, module, e)]
        if not gone:
            return UNKNOWN
        rest = [e for e in elements if e not in gone]
        if not rest:
            return Fold(False) if is_asked_beside(self.project, module, call) else UNKNOWN
        beside = any(is_fsdp2_class(self.project, module, e) for e in rest)
        if not beside and not is_asked_beside(self.project, module, call):
            return UNKNOWN
        text = without(module, classes, gone)
        span, inner = module.span(call), module.span(classes)
        head, tail = Span(span.start, inner.start), Span(inner.end, span.end)
        return Fold(code=(Hole(head), text, Hole(tail)))

    def asks_for(self, module: Module, test: ast.expr) -> Stack:
        """The stack that a condition asks for by its own words."""
        match test:
            case ast.BoolOp(op=ast.And()):
                found = {self.asks_for(module, value) for value in test.values} - {Stack.NEITHER}
                return found.pop() if len(found) == 1 else Stack.NEITHER
            case ast.Call(func=ast.Name(id="isinstance"), args=[_, classes]):
                elements = list(classes_of(classes))
                if all(is_fsdp1_class(self.project, module, e) for e in elements):
                    return Stack.FSDP1
                is_second = all(is_fsdp2_class(self.project, module, e) for e in elements)
                return Stack.FSDP2 if is_second else Stack.NEITHER
            case ast.Compare(
                left=ast.Call() as call, ops=[ast.Eq()], comparators=[ast.Constant(value=value)]
            ):
                for stack in (Stack.FSDP1, Stack.FSDP2):
                    if value in self._given_for(module, call, stack):
                        return stack
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
            key = constant_key(test.comparators[0])
            for pair in self.choices.of(test.left):
                if key in (pair.first, pair.second):
                    return Stack.FSDP1 if key == pair.first else Stack.FSDP2
        return Stack.NEITHER

    def _given_for(self, module: Module, call: ast.Call, stack: Stack) -> set[object]:
        """What a function gives under `isinstance(x, <the stack's class>)`: `fsdp_version` 1 or 2."""
        symbol = self.project.resolve(module, call.func)
        if symbol is None or symbol.module is None or not isinstance(symbol.node, _FUNCTIONS):
            return set()
        return {
            statement.value.value
            for node in ast.walk(symbol.node)
            if isinstance(node, ast.If) and isinstance(node.test, ast.Call | ast.BoolOp)
            if self.asks_for(symbol.module, node.test) is stack
            for statement in node.body
            if isinstance(statement, ast.Return) and isinstance(statement.value, ast.Constant)
        }


def _hole(start: int, end: int) -> Hole | None:
    return Hole(Span(start, end)) if end > start else None


def _is_type_of(node: ast.expr) -> bool:
    is_call = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "type"
    return is_call or (isinstance(node, ast.Attribute) and node.attr == "__class__")
