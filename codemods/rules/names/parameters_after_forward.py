"""Parameters that are walked over while the root of a sharded model is gathered.

Source: `torch/distributed/fsdp/_fully_shard/_fsdp_state.py` (the root stays gathered after a forward pass
until the backward pass has used it).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.rule import (
    Finding,
    Maybe,
    Module,
    No,
    Project,
    Safety,
    code,
    finding,
    insert_before,
    is_gathered,
    parameter_loops,
    rule,
    stands_alone,
)

_HARMLESS = frozenset({"numel", "shape", "size", "dim", "ndim", "dtype", "device", "grad", "is_meta", "name"})


@rule(
    "parameters after a forward pass",
    {"FM520": "parameters that are read or changed while the root is gathered"},
    order=60,
)
def parameters_after_forward(project: Project) -> Iterator[Finding]:
    """Before a walk over parameters that follows a forward pass without backward, the units are resharded.

    After a forward pass the root of an FSDP2 model stays gathered. `model.named_parameters()` then shows
    whole, temporary tensors for it beside the DTensors of the units: an average of weights mixes both kinds,
    and what is written into the temporary ones (or said of them, as `requires_grad`) is lost.

        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()
        for name, parameter in model.named_parameters():
            average[name].lerp_(parameter, 0.1)

    Loops that only ask for shapes, counts and dtypes are left as they are."""
    for module in list(project.modules.values()):
        for loop in parameter_loops(project, module):
            holding = project.sharded(module, loop.owner)
            if isinstance(holding, No) or not _uses_values(module, loop.node, loop.parameters):
                continue
            if not is_gathered(project, module, loop.node.iter, loop.owner):
                continue
            statement = module.statement(loop.node.iter)
            is_alone = isinstance(statement, ast.For | ast.Assign | ast.Expr | ast.Return)
            edits = []
            if is_alone and stands_alone(module, statement) and not isinstance(holding, Maybe):
                lines = code(
                    module,
                    "# After a forward pass the root shows temporary parameters.\n"
                    "for module in {model}.modules():\n"
                    "    if isinstance(module, {torch.distributed.fsdp.FSDPModule}):\n"
                    "        module.reshard()",
                    model=ast.unparse(loop.owner),
                )
                edits = [insert_before(module, statement, lines)]
            yield finding(
                module,
                loop.node.iter,
                "FM520",
                "the model has run and no backward pass followed: its root shows temporary parameters here",
                remedy="call `reshard()` on every `FSDPModule` of the model before this loop",
                safety=Safety.SAFE if edits else Safety.MANUAL,
                edits=edits,
                is_note=isinstance(holding, Maybe),
            )


def _uses_values(module: Module, loop: ast.For | ast.comprehension, names: frozenset[str]) -> bool:
    """Whether a loop does more with its parameters than ask for shapes and dtypes."""
    body = loop.body if isinstance(loop, ast.For) else [module.parent(loop)]
    for node in (n for part in body if part is not None for n in ast.walk(part)):
        if not isinstance(node, ast.Name) or node.id not in names or not isinstance(node.ctx, ast.Load):
            continue
        parent = module.parent(node)
        if isinstance(parent, ast.Attribute):
            is_asked = parent.attr == "requires_grad" and isinstance(parent.ctx, ast.Load)
            if parent.attr in _HARMLESS or is_asked:
                continue
        return True
    return False
