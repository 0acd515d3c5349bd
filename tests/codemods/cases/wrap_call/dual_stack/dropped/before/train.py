import torch
from torch.distributed.fsdp import (
    CPUOffload,
    FSDPModule,
    fully_shard,
)
from torch.distributed.fsdp import (
    FullyShardedDataParallel as FSDP,
)

from model import Block, Model, batch, loss_of


def shard(model, how):
    if how == "fsdp":
        offload = CPUOffload(offload_params=False)
        return FSDP(model, cpu_offload=offload, device_id=torch.device("cpu"))
    elif how == "fsdp2":
        for block in model.blocks:
            fully_shard(block)
        return fully_shard(model)
    raise ValueError(how)


def clip(model):
    if isinstance(model, FSDP):
        return model.clip_grad_norm_(1.0)
    elif isinstance(model, FSDPModule):
        return torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()
    return torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)


def main(out, how):
    torch.manual_seed(3)
    model = shard(Model(), how)
    assert isinstance(model.blocks[0], Block)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    optimizer.zero_grad()
    loss = loss_of(model, batch(0))
    loss.backward()
    norm = clip(model)
    optimizer.step()
    return {"model": model, "loss": loss.item(), "norm": norm}
