import torch
import torch.distributed as dist
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    StateDictType,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from model import Model
from steps import build, train


def whole(model, optimizer, rank0_only):
    return FSDP.full_optim_state_dict(model, optimizer, rank0_only=rank0_only)


def loadable(model, optimizer, state, how):
    if how == "scatter":
        # Rank 0 has it, and no optimizer is named.
        state = state if dist.get_rank() == 0 else None
        return FSDP.scatter_full_optim_state_dict(state, model)
    if how == "scatter by name":
        return FSDP.scatter_full_optim_state_dict(
            full_optim_state_dict=state, model=model, optim=optimizer
        )
    if how == "shard":
        return FSDP.shard_full_optim_state_dict(state, model, None, optimizer)
    if how == "by name":
        return FSDP.optim_state_dict_to_load(
            optim=optimizer, optim_state_dict=state, model=model
        )
    with FSDP.state_dict_type(
        model,
        StateDictType.FULL_STATE_DICT,
        FullStateDictConfig(),
        FullOptimStateDictConfig(offload_to_cpu=False, rank0_only=True),
    ):
        moments = FSDP.optim_state_dict_to_load(model, optimizer, state)
    return moments


def main(out, how):
    model, optimizer = build()
    losses = train(model, optimizer, 0, 2)
    state = whole(model, optimizer, rank0_only=how == "scatter")
    if dist.get_rank() == 0:
        torch.save(state, out / "optim.pt")
    dist.barrier()
    saved = torch.load(out / "optim.pt", weights_only=False)
    again, again_optimizer = build()
    again_optimizer.load_state_dict(loadable(again, again_optimizer, saved, how))
    losses += train(again, again_optimizer, 2, 4)
    return {"losses": losses, "model": again, "parameters": len(list(Model().parameters()))}
