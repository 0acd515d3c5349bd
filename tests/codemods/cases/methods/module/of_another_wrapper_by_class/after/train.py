import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP


def wrap(model, kind):
    if kind == "fsdp":
        return fully_shard(model)
    return DDP(model) if kind == "ddp" else model


def layers_of(model):
    match model:
        case DDP():
            return model.module.layers
        case FSDPModule():
            return model.layers
        case nn.Module():
            return model.layers


def whole(model):
    """The state dict of a model, wrapped in whatever or in nothing."""
    if isinstance(model, FSDPModule):
        config = StateDictOptions(full_state_dict=True, cpu_offload=True)
        return get_model_state_dict(model, options=config)
    if isinstance(model, DDP):
        model = model.module
    return model.state_dict()


def main(build, kind):
    model = wrap(build(), kind)
    torch.save(whole(model), f"{len(layers_of(model))}.pt")
