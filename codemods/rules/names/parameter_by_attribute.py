"""One parameter of a sharded model, reached by its attribute.

Source: `torch/distributed/tensor` (a reduction of a DTensor can be this rank's part)."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.analysis.summoned import is_summoned
from codemods.rule import Finding, Module, No, Project, finding, rule

_PARAMETERS = ("weight", "bias")
_READS = {
    *("norm", "item", "mean", "sum", "max", "min", "std", "var", "any", "all", "numpy", "tolist"),
    *("copy_", "isnan", "isinf", "isfinite"),
}
_REMEDY = "use `full_tensor()` for whole values or `to_local()` for this rank's"


@rule("one parameter", {"FM523": "one sharded parameter is read or written"})
def parameter_by_attribute(project: Project) -> Iterator[Finding]:
    """`model.head.weight.norm()` meets a DTensor.

    A reduction of it can be this rank's part (`.item()` gives that without a word), `numpy()` and copying a
    plain tensor into it raise. Loops over `model.parameters()` or over an optimizer's groups are FM514."""
    for module in project.looked_at:
        for node in module.attributes(*_READS):
            if not isinstance(module.parent(node), ast.Call):
                continue
            if is_summoned(module, node):
                continue
            if _is_of_model(project, module, node.value):
                yield finding(
                    module,
                    node,
                    "FM523",
                    "this reads or writes a DTensor: a reduction can be this rank's part, a plain tensor "
                    "cannot be mixed in",
                    remedy=_REMEDY,
                )


def _chain(node: ast.expr) -> list[ast.expr]:
    """`m.head.weight`, `m.head`, `m` of `m.head.weight.grad.norm(2)`: everything it is reached through."""
    found = []
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
        found.append(node)
    return found


def _is_of_model(project: Project, module: Module, node: ast.expr) -> bool:
    chain = [node, *_chain(node)]
    if any(isinstance(part, ast.Attribute) and part.attr in _READS for part in chain):
        return False  # the inner reduction is the place
    at = next(
        (i for i, p in enumerate(chain) if isinstance(p, ast.Attribute) and p.attr in _PARAMETERS), None
    )
    return at is not None and any(
        not isinstance(project.sharded(module, part), No) for part in chain[at + 1 :]
    )
