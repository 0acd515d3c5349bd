"""Activation checkpointing that is applied after the model is sharded.

Source: `torch/distributed/algorithms/_checkpoint/checkpoint_wrapper.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from codemods.rule import Finding, No, Project, argument, finding, rule

_NAME = "torch.distributed.algorithms._checkpoint.checkpoint_wrapper.apply_activation_checkpointing"


@rule("apply_activation_checkpointing", {"FM505": "activation checkpointing applied after sharding"})
def activation_checkpointing(project: Project) -> Iterator[Finding]:
    """`apply_activation_checkpointing(model, ...)` after the wrap is kept and noted.

    FSDP1 put the checkpoint wrapper inside the unit; after `fully_shard` it lands around it. Losses,
    gradients and the number of collectives are the same either way (measured). The order PyTorch recommends
    is checkpointing, compile, `fully_shard`: consider moving the call before the sharding when you next
    touch this code."""
    for module, call in project.calls_of(_NAME):
        model = argument(call, 0, "model")
        if model is None or isinstance(project.sharded(module, model), No):
            continue
        yield finding(
            module,
            call,
            "FM505",
            "works after `fully_shard` with the same results; the recommended order is checkpointing first",
            is_note=True,
        )
