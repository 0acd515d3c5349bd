"""`isinstance(x, FSDP)` and other questions about the class.

Source: `torch/distributed/fsdp/_fully_shard/_fully_shard.py` (`fully_shard` gives the module a class
`FSDP<Name>` that inherits from `FSDPModule` and from the module's own class)."""

from __future__ import annotations

import ast
from collections.abc import Iterator

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


@rule("isinstance", {"FM501": "a question whether something is an FSDP1 module"})
def isinstance_(project: Project) -> Iterator[Finding]:
    """`isinstance(x, FSDP)` becomes `isinstance(x, FSDPModule)`.

    On an FSDP2 model the old question is always False, without a word. `type(x) is FSDP` and `type(x) ==
    FSDP` become `isinstance` too, because `fully_shard` makes a class of its own for every module class.

    A loop that takes wrappers off, `while isinstance(x, (FSDP, DDP)): x = x.module`, would not end any more:
    FSDP1's class is taken out of the question there.

    What is new: a sharded module is now also an instance of its own class. Code that met the wrapper and
    then the module inside it meets one object."""
    for use in project.uses(FSDP):
        loop = unwrapping_loop(use.module, use.node)
        if loop is not None:
            yield from _of_unwrapping(use, loop)
            continue
        edit = _edit(use)
        if edit is None:
            continue
        yield finding(
            use.module,
            use.node,
            "FM501",
            "sharded modules are instances of `FSDPModule`",
            safety=Safety.SAFE,
            edits=[edit],
        )


def _of_unwrapping(use: NameUse, loop: ast.While) -> Iterator[Finding]:
    module, question = use.module, _question(use.module, use.node)
    if question is not loop.test:
        return
    assert isinstance(question, ast.Call)
    classes = question.args[1]
    edits: list[Edit] = []
    if isinstance(classes, ast.Tuple) and len(classes.elts) > 1:
        rest = [module.code(one) for one in classes.elts if one is not use.node]
        edits = [replace(module, classes, (f"({', '.join(rest)})" if len(rest) > 1 else rest[0],))]
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


def _edit(use: NameUse) -> Edit | None:
    module, node = use.module, use.node
    question = _question(module, node)
    if isinstance(question, ast.Call):
        return replace(module, node, code(None, _FSDP_MODULE))
    if isinstance(question, ast.Compare):
        subject = _type_of(question)
        if subject is not None and len(question.ops) == 1:
            negative = isinstance(question.ops[0], ast.IsNot | ast.NotEq)
            template = ("not " if negative else "") + f"isinstance({{x}}, {_FSDP_MODULE})"
            return replace(module, question, code(module, template, x=subject))
    return None


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
    left = question.left
    if not isinstance(question.ops[0], ast.Is | ast.IsNot | ast.Eq | ast.NotEq):
        return None
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
