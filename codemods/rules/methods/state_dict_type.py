"""`with FSDP.state_dict_type(model, ...):`.

Source: `FullyShardedDataParallel.state_dict_type`, `torch/distributed/checkpoint/state_dict.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from codemods.rule import (
    BlockPlan,
    Finding,
    Project,
    Refused,
    Safety,
    finding,
    plan_block,
    rule,
    state_dict_blocks,
)

_REMEDY = (
    "save with `get_model_state_dict`/`get_optimizer_state_dict` and load with `set_model_state_dict`/"
    "`set_optimizer_state_dict` of `torch.distributed.checkpoint.state_dict`, then remove the context"
)
_LOCAL = (
    "write a DCP directory: `dcp.save(get_model_state_dict(model), checkpoint_id=...)`; convert old "
    "files with "
    "`fsdp-migrate convert-ckpt`"
)


@rule("state_dict_type", {"FM401": "a context that chooses the kind of state dict"})
def state_dict_type(project: Project) -> Iterator[Finding]:
    """`with FSDP.state_dict_type(...)` goes; each call in it says what kind it wants.

        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT,
                                  FullStateDictConfig(offload_to_cpu=True, rank0_only=True)):
            state = model.state_dict()

        state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))

    With `full_state_dict` and `cpu_offload` rank 0 gets the tensors and the others an empty dict, as with
    `rank0_only=True, offload_to_cpu=True`. SHARDED_STATE_DICT is `get_model_state_dict(model)`: DTensors,
    no communication; directories that FSDP1 wrote load unchanged. The two combinations that
    `StateDictOptions` cannot say (CPU on every rank; rank 0 only without CPU) use a small helper. A
    configuration object bound to a name stays under its name as a `StateDictOptions`.

    Left to a person, with everything in the block untouched: LOCAL_STATE_DICT (FSDP2 has no flat
    parameters), a type or configuration decided at run time, a context kept in a variable or returned by a
    function, and blocks that hand the model to code that is not part of the project."""
    in_blocks = set()
    for block in state_dict_blocks(project):
        in_blocks.add(block.call)
        plan = plan_block(project, block)
        if isinstance(plan, Refused):
            local = "LOCAL_STATE_DICT" in plan.why
            yield finding(block.module, block.call, "FM401", plan.why, remedy=_LOCAL if local else _REMEDY)
        else:
            yield _translated(block.module.path, plan)
    for use in project.static_calls("state_dict_type"):
        if use.node not in in_blocks:
            yield finding(
                use.module,
                use.node,
                "FM401",
                "a `state_dict_type` context that is kept for later: which calls it holds for cannot be told",
                remedy=_REMEDY,
            )


def _translated(path: str, plan: BlockPlan) -> Finding:
    return finding(
        plan.block.module,
        plan.block.call,
        "FM401",
        f"state dicts of this block say themselves what kind they are ({plan.kind})",
        safety=Safety.SAFE,
        edits=plan.edits,
    )
