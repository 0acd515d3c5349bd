"""`isinstance(x, FSDP)` and other questions about the class.

Source: `torch/distributed/fsdp/_fully_shard/_fully_shard.py` (`fully_shard` gives the module a class
`FSDP<Name>` that inherits from `FSDPModule` and from the module's own class)."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.analysis.class_questions import classes_of
from codemods.analysis.library_calls import lightning_calls
from codemods.dual_stack.beside import is_asked_beside, is_fsdp2_class, without
from codemods.dual_stack.elsewhere import serves_both
from codemods.dual_stack.versions import other_version
from codemods.editing.plain_unwrapping import plain_unwrapping
from codemods.rule import (
    FSDP,
    Edit,
    Finding,
    Module,
    NameUse,
    Project,
    Safety,
    code,
    delete,
    finding,
    replace,
    rule,
    unwrapping_loop,
)

_FSDP_MODULE = "{torch.distributed.fsdp.FSDPModule}"
_NAME = "FullyShardedDataParallel"


@rule("isinstance", {"FM501": "a question whether something is an FSDP1 module"})
def isinstance_(project: Project) -> Iterator[Finding]:
    """`isinstance(x, FSDP)` becomes `isinstance(x, FSDPModule)`.

    On an FSDP2 model the old question is always False, without a word. `type(x) is FSDP` and `type(x) ==
    FSDP` become `isinstance` too, because `fully_shard` makes a class of its own for every module class.

    A loop that takes wrappers off, `while isinstance(x, (FSDP, DDP)): x = x.module`, would not end any more:
    FSDP1's class is taken out of the question there.

    So does a question for the class by its name, `type(x).__name__ == "FullyShardedDataParallel"`.

    Where `FSDPModule` is asked for beside it, of the same object in the same function, or by another function
    that does nothing else (`is_fsdp1`, `is_fsdp2`), the question stays as it is, with a note: its branch is
    for FSDP1 models, and the sharded model goes to FSDP2's branch. So it does where the other answer means
    FSDP2: `return 1 if isinstance(m, FSDP) else 2` in `fsdp_version` of a program that uses FSDP2.
    `isinstance(x, (FSDP, FSDPModule))` becomes `isinstance(x, FSDPModule)`.

    A file that is handed models of either stack by others (no wrap call of the program's own is FSDP1's, and
    it asks for `FSDPModule` too) keeps its questions for FSDP1's class, and all that they lead to.

    Where all that shards is a strategy of Lightning, which is left to you, the question is too.

    What is new: a sharded module is now also an instance of its own class. Code that met the wrapper and
    then the module inside it meets one object."""
    for use in project.uses(FSDP):
        if serves_both(project, use.module) and _question(use.module, use.node) is not None:
            yield _of_others(project, use)
            continue
        loop = unwrapping_loop(use.module, use.node)
        if loop is not None:
            yield from _of_unwrapping(use, loop)
            continue
        if _is_first_branch(project, use):
            yield finding(
                use.module,
                use.node,
                "FM501",
                "this question is for FSDP1 models and stays; sharded models go to the one for `FSDPModule`",
                remedy="remove what it leads to, or rewrite with `--drop-fsdp1`",
                is_note=True,
            )
            continue
        if (other := _other_version(project, use)) is not None:
            yield finding(
                use.module,
                use.node,
                "FM501",
                f"this tells FSDP1 models from FSDP2's and stays: the sharded model gets `{other}`",
                remedy="answer for FSDP2 alone where no FSDP1 model can come",
                is_note=True,
            )
            continue
        edit = plain_unwrapping(use.module, use.node) or _edit(project, use)
        if edit is not None:
            yield _asked(project, use.module, use.node, edit)
    for module in project.looked_at:
        if _NAME in module.text and not serves_both(project, module):
            yield from _by_name(project, module)


def _of_others(project: Project, use: NameUse) -> Finding:
    """A question in a file that is handed models of either stack."""
    question = _question(use.module, use.node)
    classes = question.args[1] if isinstance(question, ast.Call) else use.node
    if any(is_fsdp2_class(project, use.module, one) for one in classes_of(classes)):
        message = "models of both stacks come here from elsewhere: the question stays as it is"
        remedy = "ask for `FSDPModule` alone once no FSDP1 model can come"
    else:
        message = (
            "this question is for FSDP1 models that come from elsewhere and stays: FSDP2's, which this file "
            "asks for too, go another way already"
        )
        remedy = "remove it with what it leads to once no FSDP1 model can come"
    return finding(use.module, use.node, "FM501", message, remedy=remedy, is_note=True)


def _asked(project: Project, module: Module, node: ast.expr, edit: Edit) -> Finding:
    """A question that is for FSDP2's models from now on, unless FSDP1's are all there is."""
    is_left = not project.wraps and any(True for _ in lightning_calls(project))
    return finding(
        module,
        node,
        "FM501",
        "Lightning's strategy wraps with FSDP1 as long as it stays; FSDP2's models are instances of "
        "`FSDPModule`"
        if is_left
        else "sharded modules are instances of `FSDPModule`",
        remedy="ask for `FSDPModule` once the strategy is changed" if is_left else "",
        safety=Safety.MANUAL if is_left else Safety.SAFE,
        edits=[] if is_left else [edit],
    )


def _by_name(project: Project, module: Module) -> Iterator[Finding]:
    """Questions for the name of the class."""
    for question in module.nodes(ast.Compare):
        assert isinstance(question, ast.Compare)
        subject = _named(question)
        if subject is None:
            continue
        negative = isinstance(question.ops[0], ast.NotEq | ast.NotIn)
        template = ("not " if negative else "") + f"isinstance({{x}}, {_FSDP_MODULE})"
        edit = replace(module, question, code(module, template, x=subject))
        yield _asked(project, module, question, edit)


def _named(question: ast.Compare) -> ast.expr | None:
    """`x` of `type(x).__name__ == "FullyShardedDataParallel"` and `"FullyShardedDataParallel" in
    str(type(x))`."""
    if len(question.ops) != 1:
        return None
    left, right = question.left, question.comparators[0]
    if isinstance(question.ops[0], ast.In | ast.NotIn):
        left, right = right, left
    elif not isinstance(question.ops[0], ast.Eq | ast.NotEq):
        return None
    if isinstance(left, ast.Constant):
        left, right = right, left
    if not isinstance(right, ast.Constant) or right.value != _NAME:
        return None
    match left:
        case ast.Attribute(value=inner, attr="__name__" | "__qualname__"):
            pass
        case ast.Call(func=ast.Name(id="str" | "repr"), args=[inner]):
            pass
        case _:
            return None
    match inner:
        case ast.Call(func=ast.Name(id="type"), args=[subject]):
            return subject
        case ast.Attribute(value=subject, attr="__class__"):
            return subject
    return None


def _of_unwrapping(use: NameUse, loop: ast.While) -> Iterator[Finding]:
    module, question = use.module, _question(use.module, use.node)
    if question is not loop.test:
        return
    assert isinstance(question, ast.Call)
    classes = question.args[1]
    edits: list[Edit] = []
    if isinstance(classes, ast.Tuple) and len(classes.elts) > 1:
        edits = [replace(module, classes, (without(module, classes, [use.node]),))]
    elif classes is use.node and len(loop.body) == 1 and not loop.orelse:
        edits = [delete(module, loop)]
    yield finding(
        module,
        use.node,
        "FM501",
        "an FSDP2 model has no wrapper to take off, and stays an `FSDPModule`: this loop would not end",
        remedy="ask for the classes of the other wrappers only",
        safety=Safety.SAFE if edits else Safety.MANUAL,
        edits=edits,
    )


def _is_first_branch(project: Project, use: NameUse) -> bool:
    """Whether a question is for FSDP1's class alone, and one beside it, of the same object, for FSDP2's."""
    module, node = use.module, use.node
    question = _question(module, node)
    match question:
        case ast.Call(func=ast.Name(id="isinstance"), args=[subject, classes]) if classes is node:
            return is_asked_beside(project, module, question, ast.unparse(subject))
        case ast.Compare(comparators=[classes]) if classes is node:
            asked = _type_of(question)
            return asked is not None and is_asked_beside(project, module, question, ast.unparse(asked))
    if not _is_pattern(module, node):
        return False
    block = next(parent for parent in module.ancestors(node) if isinstance(parent, ast.Match))
    patterns = [case.pattern for case in block.cases]
    return any(isinstance(p, ast.MatchClass) and is_fsdp2_class(project, module, p.cls) for p in patterns)


def _other_version(project: Project, use: NameUse) -> str | None:
    """What an FSDP2 model is answered by a question for FSDP1's class alone that tells versions apart."""
    question = _question(use.module, use.node)
    match question:
        case ast.Call(args=[_, classes]) | ast.Compare(comparators=[classes]) if classes is use.node:
            return other_version(project, use.module, question)
    return None


def _edit(project: Project, use: NameUse) -> Edit | None:
    module, node = use.module, use.node
    question = _question(module, node)
    if isinstance(question, ast.Call):
        classes = question.args[1]
        if any(is_fsdp2_class(project, module, one) for one in classes_of(classes)):
            return replace(module, classes, (without(module, classes, [node]),))
        return replace(module, node, code(None, _FSDP_MODULE))
    if isinstance(question, ast.Compare):
        subject = _type_of(question)
        if subject is not None and len(question.ops) == 1:
            negative = isinstance(question.ops[0], ast.IsNot | ast.NotEq)
            template = ("not " if negative else "") + f"isinstance({{x}}, {_FSDP_MODULE})"
            return replace(module, question, code(module, template, x=subject))
        return _among(module, node, question)
    if _is_pattern(module, node) or _is_among_kinds(module, node):
        return replace(module, node, code(None, _FSDP_MODULE))
    return None


def _among(module: Module, node: ast.expr, question: ast.Compare) -> Edit | None:
    """`type(x) in (FSDP, DDP)` becomes an `isinstance` question."""
    subject, classes = _exact_type(question.left), question.comparators[0]
    if subject is None or len(question.ops) != 1 or not isinstance(question.ops[0], ast.In | ast.NotIn):
        return None
    if not isinstance(classes, ast.Tuple | ast.List | ast.Set) or node not in classes.elts:
        return None
    new = "not " if isinstance(question.ops[0], ast.NotIn) else ""
    names = [_FSDP_MODULE if c is node else f"{{c{n}}}" for n, c in enumerate(classes.elts)]
    others = {f"c{n}": c for n, c in enumerate(classes.elts) if c is not node}
    template = f"{new}isinstance({{x}}, ({', '.join(names)}))"
    return replace(module, question, code(module, template, x=subject, **others))


def _is_pattern(module: Module, node: ast.expr) -> bool:
    """`case FSDP():`"""
    parent = module.parent(node)
    return isinstance(parent, ast.MatchClass) and not parent.patterns and not parent.kwd_patterns


def _is_among_kinds(module: Module, node: ast.expr) -> bool:
    """Whether a class stands in a tuple that is bound to a name and only asked `isinstance` questions with:
    `WRAPPERS = (FSDP, DDP)`."""
    classes = module.parent(node)
    assignment = module.parent(classes) if isinstance(classes, ast.Tuple) else None
    if not isinstance(assignment, ast.Assign) or len(assignment.targets) != 1:
        return False
    target = assignment.targets[0]
    if not isinstance(target, ast.Name) or "__all__" in module.text:
        return False
    uses = [
        n
        for n in module.nodes(ast.Name)
        if isinstance(n, ast.Name) and n.id == target.id and isinstance(n.ctx, ast.Load)
    ]
    return bool(uses) and all(isinstance(_question(module, use), ast.Call) for use in uses)


def _question(module: Module, node: ast.expr) -> ast.expr | None:
    """The `isinstance`/`issubclass` call or the comparison that a class name stands in, tuples and unions
    between."""
    child: ast.AST = node
    for parent in module.ancestors(node):
        if isinstance(parent, ast.Tuple | ast.List | ast.BinOp):
            child = parent
            continue
        if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name):
            is_class = len(parent.args) == 2 and parent.args[1] is child
            return parent if parent.func.id in ("isinstance", "issubclass") and is_class else None
        if isinstance(parent, ast.Compare):
            return parent
        return None
    return None


def _type_of(question: ast.Compare) -> ast.expr | None:
    """`x` of `type(x) is ...` and `x.__class__ == ...`."""
    if not isinstance(question.ops[0], ast.Is | ast.IsNot | ast.Eq | ast.NotEq):
        return None
    return _exact_type(question.left)


def _exact_type(left: ast.expr) -> ast.expr | None:
    if (
        isinstance(left, ast.Call)
        and isinstance(left.func, ast.Name)
        and left.func.id == "type"
        and left.args
    ):
        return left.args[0]
    if isinstance(left, ast.Attribute) and left.attr == "__class__":
        return left.value
    return None
