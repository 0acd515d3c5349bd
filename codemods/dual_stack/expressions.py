"""Conditional expressions, `match`, tables of functions, conditions anywhere, of which a part is FSDP1's."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from codemods.analysis.module import Module
from codemods.dual_stack.chains import INSISTS
from codemods.dual_stack.choices import constant_key
from codemods.dual_stack.marks import Marks, Stack
from codemods.dual_stack.spans import removed
from codemods.dual_stack.spot import Refused, Spot
from codemods.dual_stack.truth import Truth
from codemods.model import Code, Edit, Hole, Span
from codemods.project import Project
from codemods.torch_names import FSDP, FSDP_MODULE


def conditional_spot(truth: Truth, marks: Marks, module: Module, node: ast.IfExp) -> Spot | None:
    """`a if fsdp1 else b`."""
    fold = truth.fold(module, node.test)
    stacks = [marks.within(module, [part]) for part in (node.body, node.orelse)]
    both = sorted(map(list, stacks), key=str) == sorted([[Stack.FSDP1], [Stack.FSDP2]], key=str)
    if fold.is_outside:
        reason = "FSDP1 is chosen by another library, and here nobody could be told that it has gone"
        return Spot(module, node.test, Refused(reason), both)
    edits: list[Edit]
    if fold.value is None and both:
        edits = [_in_place(module, node, node.body if stacks[0] == {Stack.FSDP2} else node.orelse)]
    elif fold.value is not None:
        edits = [_in_place(module, node, node.body if fold.value else node.orelse)]
    elif fold.code is not None:
        edits = [Edit(module.path, module.span(node.test), fold.code)]
    else:
        return None
    return Spot(module, node.test, edits, both)


def _in_place(module: Module, node: ast.IfExp, kept: ast.expr) -> Edit:
    """One operand for the whole; parentheses that only held it together over lines go with it."""
    span = module.span(node)
    code: Code = (Hole(module.span(kept)),)
    parent = module.parent(node)
    loose = isinstance(kept, ast.Lambda | ast.IfExp | ast.BoolOp | ast.NamedExpr)
    if isinstance(parent, ast.Assign | ast.Return | ast.AnnAssign) and "\n" not in module.code(kept):
        before = re.search(r"\(\s*$", module.text[: span.start])
        after = re.match(r"\s*\)", module.text[span.end :])
        if before and after and module.span(parent).start <= before.start():
            return Edit(module.path, Span(before.start(), span.end + after.end()), code)
    if loose and not isinstance(parent, ast.Assign | ast.Return | ast.AnnAssign):
        code = ("(", *code, ")")
    return Edit(module.path, span, code)


def match_spot(truth: Truth, marks: Marks, module: Module, node: ast.Match) -> Spot | None:
    """`match strategy: case "fsdp": ... case "fsdp2": ...`."""
    cases = node.cases
    stacks = [marks.stack_of(module, case.body) for case in cases]
    firsts = [i for i, c in enumerate(cases) if _is_first(truth, module, node, c.pattern)]
    if not firsts:
        if not {Stack.FSDP1, Stack.FSDP2} <= set(stacks):
            return None
        return Spot(module, node.subject, Refused("its cases do not say which of them is FSDP1's"), True)
    seconds = [i for i, c in enumerate(cases) if _second_of(truth, node, c.pattern) is not None]
    if any(cases[i].guard is not None for i in (*firsts, *seconds)):
        return Spot(module, node.subject, Refused("its cases have further conditions"), True)
    if len(firsts) == len(cases):
        return Spot(module, node.subject, [removed(module, node, node)], True)
    edits = [_without_case(module, node, i) for i in firsts]
    for i in seconds:
        pattern = cases[i].pattern
        first = _second_of(truth, node, pattern)
        assert isinstance(pattern, ast.MatchValue) and first is not None
        quote = module.code(pattern.value)[:1]
        text = f"{quote}{ast.literal_eval(first)}{quote}" if quote in "\"'" else first
        if isinstance(pattern.value, ast.Attribute):
            text = f"{module.code(pattern.value.value)}.{first.rpartition('.')[2]}"
        at = module.span(pattern.value).start
        edits.append(Edit(module.path, Span(at, at), (f"{text} | ",)))
    return Spot(module, node.subject, edits, True)


def _is_first(truth: Truth, module: Module, node: ast.Match, pattern: ast.pattern) -> bool:
    if isinstance(pattern, ast.MatchClass):
        symbol = truth.project.resolve(module, pattern.cls)
        beside = any(
            isinstance(c.pattern, ast.MatchClass)
            and (other := truth.project.resolve(module, c.pattern.cls)) is not None
            and other.name in FSDP_MODULE
            for c in node.cases
        )
        return symbol is not None and symbol.name == FSDP and beside
    key = constant_key(pattern.value) if isinstance(pattern, ast.MatchValue) else None
    pairs = truth.choices.of(node.subject) if key is not None else []
    return any(pair.first == key and not pair.is_outside for pair in pairs)


def _second_of(truth: Truth, node: ast.Match, pattern: ast.pattern) -> str | None:
    """FSDP1's value, where a case is for FSDP2's alone."""
    key = constant_key(pattern.value) if isinstance(pattern, ast.MatchValue) else None
    for pair in truth.choices.of(node.subject) if key is not None else ():
        if pair.second == key and not pair.is_outside:
            return pair.first
    return None


def _without_case(module: Module, node: ast.Match, at: int) -> Edit:
    case = node.cases[at]
    keyword = module.text.rindex("case", 0, _pattern_start(module, case.pattern))
    start = module.line_start(keyword)
    end = module.line_end(module.span(case.body[-1]).end)
    return Edit(module.path, Span(start, end), ())


def _pattern_start(module: Module, pattern: ast.pattern) -> int:
    return module.offset(pattern.lineno, pattern.col_offset)


def table_spot(marks: Marks, module: Module, node: ast.Dict) -> Spot | None:
    """`{"fsdp": wrap_1, "fsdp2": wrap_2}[strategy]`: FSDP1's key leads to FSDP2's function."""
    stacks = []
    for key, value in zip(node.keys, node.values, strict=True):
        found = marks.within(module, [value]) if key is not None and constant_key(key) is not None else set()
        stacks.append(next(iter(found)) if len(found) == 1 else Stack.NEITHER)
    seconds = [v for v, s in zip(node.values, stacks, strict=True) if s is Stack.FSDP2]
    firsts = [v for v, s in zip(node.values, stacks, strict=True) if s is Stack.FSDP1]
    if not firsts or not seconds:
        return None
    if len({module.code(value) for value in seconds}) != 1:
        return Spot(module, node, Refused("several of its entries are FSDP2's"), True)
    if any(isinstance(part, ast.Call) for value in seconds for part in _evaluated(value)):
        return Spot(module, node, Refused("its entries are made when the table is"), True)
    new = module.code(seconds[0])
    return Spot(module, node, [Edit(module.path, module.span(value), (new,)) for value in firsts], True)


def _evaluated(value: ast.expr) -> Iterator[ast.AST]:
    """What of a table's entry runs when the table is made; a `partial` is as good as a function."""
    if isinstance(value, ast.Lambda):
        return
    if isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] == "partial":
        return
    yield from ast.walk(value)


def condition_spot(truth: Truth, module: Module, node: ast.expr) -> Spot | None:
    """A condition that is no test of an `if`: its value is used, asserted or looped on."""
    fold = truth.fold(module, node)
    if not fold.is_known:
        return None
    parent = module.parent(node)
    if fold.value is None:
        assert fold.code is not None
        return Spot(module, node, [Edit(module.path, module.span(node), fold.code)])
    if fold.is_outside:
        return Spot(module, node, Refused("FSDP1 is chosen by another library"))
    if isinstance(parent, ast.Assert) and parent.test is node:
        if fold.value:
            return Spot(module, node, [removed(module, parent, parent)])
        return Spot(module, node, Refused(INSISTS))
    if isinstance(parent, ast.While) and parent.test is node:
        if fold.value or parent.orelse:
            return Spot(module, node, Refused("a loop depends on it"))
        return Spot(module, node, [removed(module, parent, parent)])
    if isinstance(parent, ast.comprehension):
        if not fold.value:
            return Spot(module, node, Refused("it picks FSDP1 modules only"))
        start = module.text.rindex("if", 0, module.span(node).start)
        start -= len(module.text[:start]) - len(module.text[:start].rstrip())
        return Spot(module, node, [Edit(module.path, Span(start, module.span(node).end), ())])
    return Spot(module, node, [Edit(module.path, module.span(node), (str(fold.value),))])


def union_spots(project: Project, module: Module) -> Iterator[Spot]:
    """`FSDP | FSDPModule` in annotations."""
    for node in module.nodes(ast.BinOp):
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.BitOr):
            continue
        sides = [project.resolve(module, side) for side in (node.left, node.right)]
        names = [side.name if side is not None else "" for side in sides]
        if FSDP in names and any(name in FSDP_MODULE for name in names) and not _is_question(module, node):
            kept = node.right if names[0] == FSDP else node.left
            yield Spot(module, node, [Edit(module.path, module.span(node), (Hole(module.span(kept)),))])


def _is_question(module: Module, node: ast.AST) -> bool:
    parent = module.parent(node)
    return isinstance(parent, ast.Call) and getattr(parent.func, "id", "") == "isinstance"
