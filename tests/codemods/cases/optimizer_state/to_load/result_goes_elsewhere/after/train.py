import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

from fsdp2_sharding import full_tensors, numbered_optim_state
from model import Model
from steps import build, train


def whole(model, optimizer, rank0_only):
    return full_tensors(
        get_optimizer_state_dict(model, optimizer),
        offload_to_cpu=True,
        rank0_only=rank0_only,
    )


def loadable(model, optimizer, state, how):
    if how == "scatter":
        # Rank 0 has it, and no optimizer is named.
        state = state if dist.get_rank() == 0 else None
        return numbered_optim_state(model, None, state, from_rank0=True)
    if how == "scatter by name":
        return numbered_optim_state(model, optimizer, state, from_rank0=True)
    if how == "shard":
        return numbered_optim_state(model, optimizer, state)
    if how == "by name":
        return numbered_optim_state(model, optimizer, state)
    moments = numbered_optim_state(model, optimizer, state, from_rank0=True)
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
