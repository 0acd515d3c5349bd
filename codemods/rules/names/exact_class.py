"""`type(module) is Block` on modules of a sharded model.

Source: `torch/distributed/fsdp/_fully_shard/_fully_shard.py` (a unit's class is replaced by a subclass
`FSDP<Name>`)."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.rule import Finding, Project, Safety, code, finding, replace, rule


@rule("type", {"FM508": "a test for the exact class of a module of a sharded model"})
def exact_class(project: Project) -> Iterator[Finding]:
    """`type(m) is Block` on a module of a sharded model is False now: units have a class of their own.

        if type(module) is Block: ...
        if isinstance(module, Block): ...

    `isinstance` also holds for subclasses, which can include more modules than before; the translation is
    therefore offered with `--unsafe-fixes`. Comparisons of class names (`type(m).__name__ == "Block"`) are
    left to a person. What is looked at are modules that `modules()`, `named_modules()`, `children()` of a
    sharded model give, wherever they get to."""
    for module in list(project.modules.values()):
        for node in module.nodes(ast.Compare):
            assert isinstance(node, ast.Compare)
            subject, by_name = _subject(node)
            if subject is None or not project.links.parts_of(module, subject):
                continue
            negative = isinstance(node.ops[0], ast.IsNot | ast.NotEq)
            edits = []
            if not by_name and isinstance(node.ops[0], ast.Is | ast.IsNot | ast.Eq | ast.NotEq):
                template = ("not " if negative else "") + "isinstance({x}, {c})"
                edits = [replace(module, node, code(module, template, x=subject, c=node.comparators[0]))]
            yield finding(
                module,
                node,
                "FM508",
                "units of an FSDP2 model have a class of their own, so this test of the exact class fails",
                remedy="test with `isinstance`",
                safety=Safety.UNSAFE if edits else Safety.MANUAL,
                edits=edits,
            )


def _subject(node: ast.Compare) -> tuple[ast.expr | None, bool]:
    """`m` of `type(m) is C`, `m.__class__ == C`, `type(m).__name__ == "C"`; and whether names are
    compared."""
    left = node.left
    by_name = isinstance(left, ast.Attribute) and left.attr in ("__name__", "__qualname__")
    if by_name:
        assert isinstance(left, ast.Attribute)
        left = left.value
    if len(node.ops) != 1:
        return None, False
    if (
        isinstance(left, ast.Call)
        and isinstance(left.func, ast.Name)
        and left.func.id == "type"
        and len(left.args) == 1
    ):
        return left.args[0], by_name
    if isinstance(left, ast.Attribute) and left.attr == "__class__":
        return left.value, by_name
    return None, False
