"""Copies of a sharded model.

Source: `torch/distributed/fsdp/_fully_shard/_fully_shard.py` (`_unimplemented_deepcopy`).
"""

from __future__ import annotations

from collections.abc import Iterator

from codemods.rule import Finding, Maybe, No, Project, finding, rule

_COPIES = ("copy.deepcopy", "torch.optim.swa_utils.AveragedModel")


@rule("deepcopy", {"FM510": "a sharded model is copied"})
def deepcopy(project: Project) -> Iterator[Finding]:
    """`copy.deepcopy(model)` and `AveragedModel(model)` fail on a sharded model, under FSDP1 and FSDP2 alike.

    Copy the model before it is sharded and shard the copy too; an average of weights is then
    `torch._foreach_lerp_` over the two models' parameters.
    """
    for module in list(project.modules.values()):
        for call in module.calls():
            symbol = project.resolve(module, call.func)
            if symbol is None or symbol.name not in _COPIES or not call.args:
                continue
            holding = project.sharded(module, call.args[0])
            if isinstance(holding, No):
                continue
            yield finding(
                module,
                call,
                "FM510",
                "a model sharded by FSDP2 cannot be copied",
                remedy="copy the model before it is sharded, and shard the copy as well",
                is_note=isinstance(holding, Maybe),
            )
