"""Questions whether torch has FSDP at all."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.rule import (
    Edit,
    Finding,
    Module,
    NameUse,
    Project,
    Safety,
    Span,
    code,
    delete,
    finding,
    replace,
    rule,
)
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
    import. Where a switch of the program decides what is imported (`if USE_FSDP: ... else: FSDP = None`), the
    question becomes one about the switch. Elsewhere it is left to a person.
    """
    asked: dict[Module, dict[ast.expr, NameUse]] = {}
    for name in project.used_names():
        for use in project.uses(name) if is_fsdp1(name) else ():
            question = use.module.parent(use.node)
            if isinstance(question, ast.Compare) and _asks(question, use.node):
                asked.setdefault(use.module, {})[question] = use
    for module, questions in asked.items():
        for question, use in _joined(module, questions):
            yield from _answered(project, use, question)


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


def _answered(project: Project, use: NameUse, question: ast.expr) -> Iterator[Finding]:
    module = use.module
    gate = _switch(project, module, use.node)
    if gate is not None:
        yield from _about_switch(use, question, *gate)
        return
    edit = _edit(module, question, is_there=_is_there(question))
    message = f"whether there is a `{use.symbol.name.rsplit('.', 1)[-1]}` is no question with FSDP2"
    if edit is None:
        yield finding(module, question, "FM530", message, remedy=_REMEDY)
    else:
        yield finding(module, question, "FM530", message, safety=Safety.SAFE, edits=[edit])


def _switch(project: Project, module: Module, name: ast.expr) -> tuple[Module, ast.If] | None:
    """The `if` of which one branch imports the name and the other has none, where it asks about something
    else than torch; in another module if the name is imported from there."""
    found = module.scope_of(name).lookup(name.id) if isinstance(name, ast.Name) else None
    bindings = [(module, binding) for binding in (found[1] if found is not None else ())]
    for _, binding in list(bindings):
        home = project.index.holder(module, binding.target) if binding.target else None
        if home is not None:
            own = binding.target.rpartition(".")[2]
            bindings += [(home, b) for b in home.scope.bindings.get(own, ())]
    for home, binding in bindings:
        parent = home.parent(home.statement(binding.node))
        is_none = isinstance(binding.value, ast.Constant) and binding.value.value is None
        if is_none and isinstance(parent, ast.If) and not _is_about_torch(parent.test):
            return home, parent
    return None


def _is_about_torch(test: ast.expr) -> bool:
    """Whether a condition asks what is installed, or which version of it."""
    words = ("torch", "version", "available", "find_spec", "hasattr", "dist.", "has_fsdp", "modules")
    return any(word in ast.unparse(test).lower() for word in words)


def _about_switch(use: NameUse, question: ast.expr, home: Module, gate: ast.If) -> Iterator[Finding]:
    """The question asked of the switch itself, where that is a name that is bound once."""
    module, test = use.module, gate.test
    message = f"whether `{module.code(use.node)}` was imported is up to `{home.code(gate.test)}`"
    found = home.scope_of(test).lookup(test.id) if isinstance(test, ast.Name) else None
    here = module.scope_of(question).lookup(test.id) if isinstance(test, ast.Name) else None
    if found is None or here is None or here[0] is not found[0] or len(found[1]) != 1:
        remedy = "ask that condition itself: with FSDP2 there is always something to import"
        yield finding(module, question, "FM530", message, remedy=remedy)
        for statement in (*gate.body, *gate.orelse) if home is not module else ():
            if isinstance(statement, ast.ImportFrom):
                message = f"this import stays as long as {module.path} asks for it"
                yield finding(home, statement, "FM530", message, is_note=True)
        return
    imports = any(isinstance(s, ast.ImportFrom) for s in gate.body)
    positive = imports == _is_there(question)
    parent = module.parent(question)
    needs_no_brackets = isinstance(parent, ast.BoolOp | ast.stmt | ast.IfExp | ast.keyword)
    text = "{test}" if positive else "not {test}" if needs_no_brackets else "(not {test})"
    edits = [replace(module, question, code(module, text, test=test))]
    yield finding(module, question, "FM530", message, safety=Safety.SAFE, edits=edits)


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
