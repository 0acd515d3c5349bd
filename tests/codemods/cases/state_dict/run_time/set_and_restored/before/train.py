import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    StateDictType,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from steps import build, train


def choose(model, kind):
    if kind == "sharded":
        FSDP.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT)
    elif kind == "rank0":
        FSDP.set_state_dict_type(
            model,
            StateDictType.FULL_STATE_DICT,
            FullStateDictConfig(rank0_only=True),
            FullOptimStateDictConfig(offload_to_cpu=False, rank0_only=True),
        )


def whole(model, optimizer):
    """Whole tensors on every rank, whatever is in force; it is in force again afterwards."""
    before = FSDP.set_state_dict_type(
        model,
        StateDictType.FULL_STATE_DICT,
        FullStateDictConfig(),
        FullOptimStateDictConfig(offload_to_cpu=False),
    )
    state = {
        "model": model.state_dict(),
        "optim": FSDP.optim_state_dict(model, optimizer),
    }
    FSDP.set_state_dict_type(
        model,
        before.state_dict_type,
        before.state_dict_config,
        before.optim_state_dict_config,
    )
    return state


def checkpoint(model, optimizer):
    return {
        "model": model.state_dict(),
        "optim": FSDP.optim_state_dict(model, optimizer),
    }


def main(out, kind):
    model, optimizer = build()
    losses = train(model, optimizer, 0, 2)
    choose(model, kind)
    everything = whole(model, optimizer)
    name = FSDP.get_state_dict_type(model).state_dict_type.name
    is_sharded = name == StateDictType.SHARDED_STATE_DICT.name
    if kind == "untouched":
        state = model.state_dict()
    else:
        state = checkpoint(model, optimizer)
    if is_sharded:
        dcp.save(state, checkpoint_id=out / "shards")
        state = sorted(state["model"])
    dist.barrier()
    return {"losses": losses, "whole": everything, "state": state, "name": name}
