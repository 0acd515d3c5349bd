"""`if`, `elif`, `else`, and early returns, of which one branch is FSDP1's."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from codemods.analysis.module import Module
from codemods.dual_stack.arms import Chain, rebuilt
from codemods.dual_stack.choices import setting_and_value
from codemods.dual_stack.fold import Fold
from codemods.dual_stack.marks import Marks, Stack
from codemods.dual_stack.pure import does_more
from codemods.dual_stack.spans import only, removed, terminates
from codemods.dual_stack.spot import Refused, Spot
from codemods.dual_stack.truth import Truth
from codemods.model import Code, Edit, Hole, Span

_REFUSAL = 'raise ValueError("FSDP1 is no longer supported: choose FSDP2")'
SEVERAL = "FSDP1 is one of several ways within its branch"
OTHERS = "what comes between the FSDP1 and the FSDP2 branch could get FSDP1's users"
LATER = "FSDP1's users would come to another branch without a word"
UNSURE = "it is for FSDP1's value of the setting alone, but nothing in it is FSDP1's"
EFFECTS = "its condition does more than ask"
INSISTS = "it insists on FSDP1"


def chain_spot(truth: Truth, marks: Marks, chain: Chain) -> Spot | None:
    """What becomes of a chain; None where it is not about the stacks."""
    folds = [truth.fold(chain.module, arm.test) for arm in chain.arms]
    stacks = [_stack(truth, marks, chain.module, arm) for arm in chain.arms]
    last = marks.stack_of(chain.module, chain.rest) if chain.rest else Stack.NEITHER
    both = {Stack.FSDP1, Stack.FSDP2} <= {*stacks, last}
    if both and Stack.NEITHER is not last and not any(fold.is_outside for fold in folds):
        merged = _merged(marks, chain, stacks, last)
        if not isinstance(merged, Refused):
            return Spot(chain.module, chain.head.test, merged, True)
    if any(fold.is_known for fold in folds):
        for arm, fold in zip(chain.arms, folds, strict=True):
            if fold.by_setting and fold.value is False and not _is_evident(truth, marks, chain, arm, last):
                is_own = _setting_of(arm.test) in truth.choices.own
                return Spot(chain.module, chain.head.test, Refused(UNSURE)) if is_own else None
        return Spot(chain.module, chain.head.test, _folded(chain, folds), both)
    if not both:
        return _early(marks, chain, stacks) if not chain.rest else None
    return Spot(chain.module, chain.head.test, _merged(marks, chain, stacks, last), True)


def _stack(truth: Truth, marks: Marks, module: Module, arm: ast.If) -> Stack:
    """Whose an arm is: by what it does, else by what it asks."""
    found = marks.within(module, arm.body)
    if found:
        return next(iter(found)) if len(found) == 1 else Stack.NEITHER
    return truth.asks_for(module, arm.test)


def _is_evident(truth: Truth, marks: Marks, chain: Chain, arm: ast.If, last: Stack) -> bool:
    """Whether a branch for a setting's FSDP1 value is really about FSDP1, and not about FSDP of any kind."""
    module = chain.module
    if Stack.FSDP1 in marks.within(module, arm.body) or last is Stack.FSDP2 or _is_refusal(arm.body):
        return True
    beside = [s for s in module.block(chain.head) if isinstance(s, ast.If)]
    tests = [other.test for other in (*chain.arms, *beside) if other is not arm]
    return any(truth.asks_for(module, test) is Stack.FSDP2 for test in tests)


def _setting_of(test: ast.expr) -> str | None:
    compares = (part for part in ast.walk(test) if isinstance(part, ast.Compare))
    return next((found[0] for c in compares if (found := setting_and_value(c)) is not None), None)


def _folded(chain: Chain, folds: list[Fold]) -> list[Edit] | Refused:
    """The chain without the arms that are never taken; conditions that change have their new text."""
    module = chain.module
    if any(
        does_more(arm.test) for arm, fold in zip(chain.arms, folds, strict=True) if fold.value is not None
    ):
        return Refused(EFFECTS)
    refusing = [f.value is False and f.is_outside for f in folds]
    if any(refusing) and _ends_in_raise(chain.rest) and not any(f.value is True for f in folds):
        refusing = [False] * len(folds)
    edits: list[Edit] = []
    kept: list[ast.If] = []
    rest, rest_header = chain.rest, chain.arms[-1] if chain.rest else None
    for arm, fold, refuses in zip(chain.arms, folds, refusing, strict=True):
        if fold.value is False and not refuses:
            continue
        if refuses:
            if not _is_refusal(arm.body):
                edits.append(_refused_body(module, arm))
            kept.append(arm)
            continue
        if fold.value is True:
            rest, rest_header = arm.body, arm
            break
        if fold.code is not None:
            edits.append(Edit(module.path, module.span(arm.test), fold.code))
        kept.append(arm)
    if len(kept) == len(chain.arms):
        return edits
    if not kept and _is_refusal(rest):
        return Refused(INSISTS)
    whole = rebuilt(chain, kept, rest, rest_header)
    return [whole, *edits] if whole is not None else Refused("its branches share lines")


def _refused_body(module: Module, arm: ast.If) -> Edit:
    end = module.span(arm.body[-1]).end
    rest = module.text[end : module.line_end(end)]
    if rest.strip().startswith("#"):
        end += len(rest.rstrip())
    return Edit(module.path, Span(module.span(arm.body[0]).start, end), (_REFUSAL,))


def _is_refusal(body: list[ast.stmt]) -> bool:
    return len(body) == 1 and isinstance(body[0], ast.Raise)


def _ends_in_raise(body: list[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], ast.Raise)


def _merged(marks: Marks, chain: Chain, stacks: list[Stack], last: Stack) -> list[Edit] | Refused:
    """FSDP2's branch for whoever came to FSDP1's."""
    module, arms = chain.module, chain.arms
    firsts = [i for i, stack in enumerate(stacks) if stack is Stack.FSDP1]
    seconds = [i for i, stack in enumerate(stacks) if stack is Stack.FSDP2]
    bodies = [arms[i].body for i in firsts] + ([chain.rest] if last is Stack.FSDP1 else [])
    if any(not marks.is_certain(module, body, Stack.FSDP1) for body in bodies):
        return Refused(SEVERAL)
    if len(bodies) != 1 or len(seconds) + (last is Stack.FSDP2) != 1:
        return Refused("several branches of one stack stand beside each other")
    if any(does_more(arm.test) for arm in arms):
        return Refused(EFFECTS)
    edit: Edit | None
    if last is Stack.FSDP1:
        at = seconds[0]
        if at != len(arms) - 1 and not _exclude(module, arms[at:]):
            return Refused(OTHERS)
        edit = rebuilt(chain, [a for a in arms if a is not arms[at]], arms[at].body, arms[at])
    elif last is Stack.FSDP2:
        at = firsts[0]
        if at != len(arms) - 1 and not _exclude(module, arms[at:]):
            return Refused(LATER)
        edit = rebuilt(chain, [a for a in arms if a is not arms[at]], chain.rest, arms[-1])
    else:
        return _joined(chain, firsts[0], seconds[0])
    return [edit] if edit is not None else Refused("its branches share lines")


def _joined(chain: Chain, first: int, second: int) -> list[Edit] | Refused:
    """`if <FSDP1's condition> or <FSDP2's>:` with FSDP2's body."""
    module, arms = chain.module, chain.arms
    between = arms[min(first, second) : max(first, second) + 1]
    if abs(first - second) != 1 and not _exclude(module, between):
        return Refused(OTHERS)
    edit = rebuilt(
        chain, [a for a in arms if a is not arms[first]], chain.rest, arms[-1] if chain.rest else None
    )
    if edit is None:
        return Refused("its branches share lines")
    tests = [arms[first].test, arms[second].test]
    if first > second:
        tests.reverse()
    code: list[str | Hole] = []
    for position, test in enumerate(tests):
        loose = isinstance(test, ast.IfExp | ast.Lambda)
        code += [" or "] if position else []
        text = module.code(test)
        code.append(f"({text})" if loose else text)
    joined: Code = ("(", *code, ")") if any("\n" in str(c) for c in code) else tuple(code)
    return [edit, Edit(module.path, module.span(arms[second].test), joined)]


def _exclude(module: Module, arms: Sequence[ast.If]) -> bool:
    """Whether no two of the conditions can hold together: one value compared with different constants."""
    subjects, values = set(), []
    for arm in arms:
        test = arm.test
        if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq):
            return False
        if not isinstance(test.comparators[0], ast.Constant):
            return False
        subjects.add(module.code(test.left))
        values.append(test.comparators[0].value)
    return len(subjects) == 1 and len(set(values)) == len(values)


def _early(marks: Marks, chain: Chain, stacks: list[Stack]) -> Spot | None:
    """`if fsdp2: ...; return` with FSDP1's code below it, and the reverse."""
    module, head = chain.module, chain.head
    block = module.block(head)
    below = block[block.index(head) + 1 :]
    if len(chain.arms) != 1 or not below or not terminates(head.body):
        return None
    other = marks.stack_of(module, below)
    if {stacks[0], other} != {Stack.FSDP1, Stack.FSDP2}:
        return None
    return Spot(module, head.test, _early_edits(marks, module, head, below, stacks[0]), True)


def _early_edits(
    marks: Marks, module: Module, head: ast.If, below: list[ast.stmt], stack: Stack
) -> list[Edit] | Refused:
    if does_more(head.test):
        return Refused(EFFECTS)
    first, second = (head.body, below) if stack is Stack.FSDP1 else (below, head.body)
    if not marks.is_certain(module, first, Stack.FSDP1):
        return Refused(SEVERAL)
    if stack is Stack.FSDP1:
        if not marks.is_certain(module, second, Stack.FSDP2):
            return Refused(LATER)
        return [removed(module, head, head)]
    edit = only(module, head, head.body, below[-1])
    return [edit] if edit is not None else Refused("its branches share lines")
