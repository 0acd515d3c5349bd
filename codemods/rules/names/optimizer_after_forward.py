"""An optimizer that is built after the sharded model has run.

Source: `torch/distributed/fsdp/_fully_shard/_fsdp_state.py` (the root stays gathered after a forward pass).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.rule import Finding, No, Project, Safety, code, finding, has_run, insert_before, rule


@rule(
    "optimizer after a forward pass",
    {"FM519": "an optimizer built after the sharded model has run"},
    order=30,
)
def optimizer_after_forward(project: Project) -> Iterator[Finding]:
    """Before an optimizer that is built after a forward pass, the units are resharded.

    After a forward pass the root of an FSDP2 model stays gathered: `model.parameters()` then shows whole,
    temporary parameters for it, and an optimizer built from them would never update the root, without a word.

        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()
        optimizer = AdamW(model.parameters())
    """
    for module in list(project.modules.values()):
        for call in module.calls():
            if not project.links.builds_optimizer(module, call):
                continue
            for owner in project.links.parameter_owners(module, call):
                if isinstance(project.sharded(module, owner), No) or not has_run(
                    project, module, call, owner
                ):
                    continue
                lines = code(
                    module,
                    "# After a forward pass the root shows temporary parameters.\n"
                    "for module in {model}.modules():\n"
                    "    if isinstance(module, {torch.distributed.fsdp.FSDPModule}):\n"
                    "        module.reshard()",
                    model=ast.unparse(owner),
                )
                yield finding(
                    module,
                    call,
                    "FM519",
                    "the model has run before: its root would show temporary parameters to the optimizer",
                    safety=Safety.SAFE,
                    edits=[insert_before(module, module.statement(call), lines)],
                )
                break
