"""Comparisons of a setting that chooses the stack, with FSDP1's value read as FSDP2's."""

from __future__ import annotations

import ast

from codemods.analysis.module import Module
from codemods.dual_stack.choices import Choices, Pair, constant_key
from codemods.dual_stack.fold import Fold
from codemods.model import Code, Hole, Span


def chosen(module: Module, pair: Pair, subject: ast.expr, op: ast.cmpop, value: ast.expr) -> Fold | None:
    """A comparison of a setting, its value for FSDP1 read as that for FSDP2."""
    positive = isinstance(op, ast.Eq | ast.In | ast.Is)
    if isinstance(op, ast.Eq | ast.NotEq | ast.Is | ast.IsNot):
        key = constant_key(value)
        if key == pair.first:
            return Fold(not positive, is_outside=pair.is_outside, by_setting=True)
        if key == pair.second and not pair.is_outside:
            word = "in" if positive else "not in"
            listed = f"({_spelled(module, pair, value)}, {module.code(value)})"
            return Fold(code=(Hole(module.span(subject)), f" {word} {listed}"))
        return None
    if not isinstance(op, ast.In | ast.NotIn) or not isinstance(value, ast.Tuple | ast.List | ast.Set):
        return None
    keys = [constant_key(element) for element in value.elts]
    if (pair.first in keys) is (pair.second in keys) or pair.is_outside:
        return None
    if pair.second in keys:
        element = value.elts[keys.index(pair.second)]
        span, start = module.span(value), module.span(element).start
        lead = module.text[module.line_start(start) : start]
        between = f",\n{lead}" if not lead.strip() else ", "
        inserted = f"{_spelled(module, pair, element)}{between}"
        head = Hole(Span(module.span(subject).start, start))
        return Fold(code=(head, inserted, Hole(Span(start, span.end))))
    texts = [module.code(e) for e, key in zip(value.elts, keys, strict=True) if key != pair.first]
    return (
        Fold(code=_listed(module, subject, value, texts, positive=positive)) if texts else Fold(not positive)
    )


def _listed(module: Module, subject: ast.expr, value: ast.expr, texts: list[str], *, positive: bool) -> Code:
    kept = Hole(module.span(subject))
    if len(texts) == 1:
        return (kept, f" {'==' if positive else '!='} {texts[0]}")
    opening = {ast.Tuple: "(", ast.List: "[", ast.Set: "{"}[type(value)]
    closing = {ast.Tuple: ")", ast.List: "]", ast.Set: "}"}[type(value)]
    return (kept, f" {'in' if positive else 'not in'} {opening}{', '.join(texts)}{closing}")


def _spelled(module: Module, pair: Pair, second: ast.expr) -> str:
    """FSDP1's value, written as FSDP2's is here."""
    if isinstance(second, ast.Attribute):
        return f"{module.code(second.value)}.{pair.first.rpartition('.')[2]}"
    quote = module.code(second)[:1]
    text = str(ast.literal_eval(pair.first))
    return f"{quote}{text}{quote}" if quote in "\"'" else text


def asks_by_text(node: ast.expr, choices: Choices) -> bool:
    """Whether a condition asks about a part of a setting's text: `"fsdp2" in strategy`, `.startswith(..)`."""
    for part in ast.walk(node):
        match part:
            case ast.Compare(left=ast.Constant(value=str(text)), ops=[ast.In() | ast.NotIn()]):
                subject, ask = part.comparators[0], str.__contains__
            case ast.Call(
                func=ast.Attribute(attr="startswith", value=subject), args=[ast.Constant(value=str(text))]
            ):
                ask = str.startswith
            case ast.Call(
                func=ast.Attribute(attr="endswith", value=subject), args=[ast.Constant(value=str(text))]
            ):
                ask = str.endswith
            case _:
                continue
        for pair in choices.of(subject):
            one, other = (str(ast.literal_eval(k)) if "." not in k else k for k in (pair.first, pair.second))
            if ask(one, text) is not ask(other, text):
                return True
    return False
