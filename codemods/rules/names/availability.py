"""Questions whether torch has FSDP at all."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.rule import Edit, Finding, Module, NameUse, Project, Safety, Span, delete, finding, rule
from codemods.torch_names import is_fsdp1

_REMEDY = "every torch that has `fully_shard` has all of it: drop the question and the fallback"


@rule("availability of FSDP", {"FM530": "a question whether torch has FSDP"}, order=5)
def availability(project: Project) -> Iterator[Finding]:
    """`FSDP is not None and isinstance(model, FSDP)` becomes `isinstance(model, FSDPModule)`.

        try:
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        except ImportError:
            FSDP = None

    is for a torch without FSDP; each torch with `fully_shard` has all of it. The question goes where it is
    one of several conditions, or guards nothing but what happens without FSDP, and the fallback with the
    import. Elsewhere it is left to a person.
    """
    asked: dict[Module, dict[ast.expr, NameUse]] = {}
    for name in project.used_names():
        for use in project.uses(name) if is_fsdp1(name) else ():
            question = use.module.parent(use.node)
            if isinstance(question, ast.Compare) and _asks(question, use.node):
                asked.setdefault(use.module, {})[question] = use
    for module, questions in asked.items():
        for question, use in _joined(module, questions):
            yield _answered(use, question)


def _asks(question: ast.Compare, node: ast.expr) -> bool:
    """`X is None` or `X is not None`."""
    return (
        question.left is node
        and len(question.ops) == 1
        and isinstance(question.ops[0], ast.Is | ast.IsNot)
        and isinstance(question.comparators[0], ast.Constant)
        and question.comparators[0].value is None
    )


def _joined(module: Module, questions: dict[ast.expr, NameUse]) -> Iterator[tuple[ast.expr, NameUse]]:
    """The questions; one where a condition consists of several that all ask the same way."""
    for question, use in questions.items():
        parent = module.parent(question)
        if (
            isinstance(parent, ast.BoolOp)
            and all(value in questions for value in parent.values)
            and len({_is_there(value) for value in parent.values}) == 1
        ):
            if question is parent.values[0]:
                yield parent, use
        else:
            yield question, use


def _is_there(question: ast.expr) -> bool:
    """Whether a question is true where torch has FSDP."""
    while isinstance(question, ast.BoolOp):
        question = question.values[0]
    return isinstance(question, ast.Compare) and isinstance(question.ops[0], ast.IsNot)


def _answered(use: NameUse, question: ast.expr) -> Finding:
    module = use.module
    edit = _edit(module, question, is_there=_is_there(question))
    message = f"whether there is a `{use.symbol.name.rsplit('.', 1)[-1]}` is no question with FSDP2"
    if edit is None:
        return finding(module, question, "FM530", message, remedy=_REMEDY)
    return finding(module, question, "FM530", message, safety=Safety.SAFE, edits=[edit])


def _edit(module: Module, question: ast.expr, *, is_there: bool) -> Edit | None:
    """The question removed; None where it stands for something more."""
    parent = module.parent(question)
    if isinstance(parent, ast.BoolOp) and isinstance(parent.op, ast.And) == is_there:
        place = parent.values.index(question)
        spans = [module.span(value) for value in parent.values]
        own = module.span(question)
        if place + 1 < len(spans):
            span = Span(own.start, spans[place + 1].start)
            between = module.text[own.end : span.end]
        else:
            span = Span(spans[place - 1].end, own.end)
            between = module.text[span.start : own.start]
        return Edit(module.path, span, ("",)) if between.strip() in ("and", "or") else None
    if isinstance(parent, ast.If) and parent.test is question and not is_there and not parent.orelse:
        return None if "#" in module.code(parent) else delete(module, parent)
    return None
