"""Files that are handed models of either stack: nothing of the program wraps with FSDP1, and beside questions
for its class there are such for FSDP2's. What asks for FSDP1 there stays, with what it leads to."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.analysis.class_questions import classes_of
from codemods.analysis.conditions import leaves
from codemods.analysis.module import Module
from codemods.dual_stack.beside import is_fsdp1_class, is_fsdp2_class
from codemods.model import Span
from codemods.plain_tests import is_test_path
from codemods.project import Project
from codemods.torch_names import FSDP, FSDP_MODULE


def serves_both(project: Project, module: Module) -> bool:
    """Whether a file asks for FSDP2's class and for FSDP1's, and FSDP1 models can only come from elsewhere.

    Models of FSDP2 go another way in it already: were its questions for FSDP1's class to ask for them too,
    they would go where they never went.
    """
    return module in _serving(project)


def fsdp1_branches(project: Project) -> dict[str, list[Span]]:
    """Path -> what is reached only by FSDP1 models, in the files that are handed models of either stack."""
    found = project.memo.get("fsdp1_branches")
    if not isinstance(found, dict):
        found = {module.path: list(_branches(project, module)) for module in _serving(project)}
        project.memo["fsdp1_branches"] = found
    return found


def _serving(project: Project) -> frozenset[Module]:
    found = project.memo.get("serves_both")
    if not isinstance(found, frozenset):
        asked = {use.module for use in project.uses(FSDP)}
        asking = {use.module for name in FSDP_MODULE for use in project.uses(name)} & asked
        found = frozenset(m for m in asking if _asks_for_both(project, m) and not _is_wrapped(project, m))
        project.memo["serves_both"] = found
    return found


def _asks_for_both(project: Project, module: Module) -> bool:
    """Whether what has one name is asked for FSDP1's class, and for FSDP2's without it."""
    of_fsdp1, of_fsdp2 = set[str](), set[str]()
    for call in module.called("isinstance"):
        classes = list(classes_of(call.args[1])) if len(call.args) == 2 else []
        if any(is_fsdp1_class(project, module, one) for one in classes):
            of_fsdp1.add(ast.unparse(call.args[0]))
        elif any(is_fsdp2_class(project, module, one) for one in classes):
            of_fsdp2.add(ast.unparse(call.args[0]))
    return not of_fsdp1.isdisjoint(of_fsdp2)


def _is_wrapped(project: Project, module: Module) -> bool:
    """Whether a wrap call of FSDP1 belongs to the program of a file; those of tests only to tests."""
    homes = {site.module.path for site in project.wraps} | _dropped(project)
    is_test = is_test_path(module.path)
    return any(
        (is_test or not is_test_path(home)) and project.is_one_program(module.path, home) for home in homes
    )


def _dropped(project: Project) -> set[str]:
    """The files whose wrap calls `--drop-fsdp1` may have taken out."""
    originals = project.dropped.originals if project.dropped is not None else {}
    return {
        path
        for path, module in originals.items()
        if any(is_fsdp1_class(project, module, call.func) for call in module.calls())
    }


def _branches(project: Project, module: Module) -> Iterator[Span]:
    for question in module.called("isinstance"):
        if not _is_of_fsdp1(project, module, question):
            continue
        child: ast.AST = question
        holds = True
        for parent in module.ancestors(question):
            if isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not):
                holds = not holds
            elif isinstance(parent, ast.BoolOp) and isinstance(parent.op, ast.And) is holds:
                rest = parent.values[next(i for i, v in enumerate(parent.values) if v is child) + 1 :]
                yield from (module.span(value) for value in rest)
            elif isinstance(parent, ast.If | ast.IfExp) and child is parent.test:
                yield from _led_to(module, parent, holds=holds)
                break
            else:
                break
            child = parent


def _is_of_fsdp1(project: Project, module: Module, question: ast.Call) -> bool:
    """Whether it is FSDP1's class alone that is asked for."""
    classes = list(classes_of(question.args[1])) if len(question.args) == 2 else []
    return bool(classes) and all(is_fsdp1_class(project, module, one) for one in classes)


def _led_to(module: Module, branch: ast.If | ast.IfExp, *, holds: bool) -> Iterator[Span]:
    """What is reached where a branch's question is answered by yes, or (`holds` false) by no."""
    if isinstance(branch, ast.IfExp):
        yield module.span(branch.body if holds else branch.orelse)
        return
    yield from (module.span(statement) for statement in (branch.body if holds else branch.orelse))
    if not holds and not branch.orelse and leaves(branch.body):
        block = module.block(branch)
        yield from (module.span(statement) for statement in block[block.index(branch) + 1 :])
