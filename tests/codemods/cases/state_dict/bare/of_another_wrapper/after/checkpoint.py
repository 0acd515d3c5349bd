import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
)
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP

from fsdp2_sharding import full_tensors


class SingleAccelerator(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *args):
        return self.module(*args)


def shard(model, how):
    if how == "fsdp":
        return fully_shard(model)
    if how == "ddp":
        return DDP(model)
    return SingleAccelerator(model)


class Checkpointer:
    def save(self, dist_model, optimizer, path):
        if isinstance(dist_model, FSDPModule):
            state = get_model_state_dict(
                dist_model,
                options=StateDictOptions(full_state_dict=True, cpu_offload=True),
            )
            moments = full_tensors(
                get_optimizer_state_dict(dist_model, optimizer), offload_to_cpu=True
            )
        elif isinstance(dist_model, (DDP, SingleAccelerator)):
            state = dist_model.module.state_dict()
            moments = optimizer.state_dict()
        else:
            raise NotImplementedError(type(dist_model))
        torch.save({"model": state, "optimizer": moments}, path)

    def restore(self, dist_model, path):
        if isinstance(dist_model, FSDPModule):
            set_model_state_dict(
                dist_model,
                torch.load(path)["model"],
                options=StateDictOptions(full_state_dict=True),
            )
            return
        dist_model.module.load_state_dict(torch.load(path)["model"])


def main(path, how):
    model = shard(nn.Linear(4, 4), how)
    checkpointer = Checkpointer()
    checkpointer.restore(model, path)
    optimizer = torch.optim.AdamW(model.parameters())
    checkpointer.save(model, optimizer, path)
