"""Questions for FSDP1's class whose other answer means FSDP2, though its class is not asked for:
`return 1 if isinstance(m, FSDP) else 2`. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from codemods.analysis.module import Module
from codemods.dual_stack.marks import FULLY_SHARD
from codemods.project import Project
from codemods.torch_names import FSDP_MODULE

_SECOND = re.compile(r"fsdp[ _-]?v?(?:ersion)?[ _-]?2|fully_shard", re.IGNORECASE)
_SPEAKS = re.compile(r"fsdp|version", re.IGNORECASE)


def other_version(project: Project, module: Module, question: ast.expr) -> str | None:
    """What code answers for an FSDP2 model where a question for FSDP1's class is answered by no.

    Numbers are a version where FSDP2 is used in the files that belong together, and the function or the name
    that gets them speaks of FSDP or of versions.

    Returns:
        The answer as it is written; None where the question does not tell versions apart.
    """
    branch, is_negated = module.parent(question), False
    if isinstance(branch, ast.UnaryOp) and isinstance(branch.op, ast.Not):
        question, branch, is_negated = branch, module.parent(branch), True
    if not isinstance(branch, ast.If | ast.IfExp) or branch.test is not question:
        return None
    yes, no = list(_given(branch.body)), list(_otherwise(module, branch))
    if is_negated:
        yes, no = no, yes
    for answer in no:
        if isinstance(answer, str) and _SECOND.search(answer) and not any(map(_is_second, yes)):
            return repr(answer)
        is_number = type(answer) is int and answer == 2 and yes == [1]
        if is_number and _speaks(module, branch) and _uses_fsdp2(project, module):
            return repr(answer)
    return None


def _is_second(answer: object) -> bool:
    return isinstance(answer, str) and _SECOND.search(answer) is not None


def _given(arm: ast.expr | Sequence[ast.stmt]) -> Iterator[object]:
    """The constant that an arm of a branch comes to."""
    if isinstance(arm, ast.Constant):
        yield arm.value
    elif not isinstance(arm, ast.expr) and arm:
        last = arm[-1]
        value = last.value if isinstance(last, ast.Return | ast.Assign) else None
        if isinstance(value, ast.Constant):
            yield value.value


def _otherwise(module: Module, branch: ast.If | ast.IfExp) -> Iterator[object]:
    """What the other arms come to: `elif`, `else`, and what stands after a branch that returns."""
    current: ast.AST = branch
    while isinstance(current, ast.If | ast.IfExp):
        rest = current.orelse
        following = rest[0] if isinstance(rest, list) and len(rest) == 1 else rest
        if isinstance(following, ast.If | ast.IfExp):
            yield from _given(following.body)
            current = following
            continue
        yield from _given(rest)
        break
    if isinstance(branch, ast.If) and isinstance(branch.body[-1], ast.Return):
        yield from _after(module, branch)


def _after(module: Module, branch: ast.If) -> Iterator[object]:
    """What is returned by the statements after a branch."""
    block = module.block(branch)
    for statement in block[block.index(branch) + 1 :]:
        if isinstance(statement, ast.If):
            yield from _given(statement.body)
            yield from _given(statement.orelse)
        yield from _given([statement])


def _speaks(module: Module, branch: ast.If | ast.IfExp) -> bool:
    """Whether the names of what gets the answer speak of FSDP or of versions."""
    statement = branch.body[-1] if isinstance(branch, ast.If) else module.statement(branch)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    names = [ast.unparse(target) for target in targets]
    function = module.function(branch)
    names += [function.name] if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) else []
    return any(map(_SPEAKS.search, names))


def _uses_fsdp2(project: Project, module: Module) -> bool:
    group = project.group(module.path)
    uses = (use for name in (*FULLY_SHARD, *FSDP_MODULE) for use in project.uses(name))
    return any(project.group(use.module.path) == group for use in uses)
