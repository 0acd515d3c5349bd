import torch
from torch import nn
from torch.distributed.fsdp import FullStateDictConfig
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType
from torch.nn.parallel import DistributedDataParallel as DDP


def wrap(model, kind):
    if kind == "fsdp":
        return FSDP(model)
    return DDP(model) if kind == "ddp" else model


def layers_of(model):
    match model:
        case DDP():
            return model.module.layers
        case FSDP():
            return model.module.layers
        case nn.Module():
            return model.layers


def whole(model):
    """The state dict of a model, wrapped in whatever or in nothing."""
    if isinstance(model, FSDP):
        config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
            return model.state_dict()
    if isinstance(model, DDP):
        model = model.module
    return model.state_dict()


def main(build, kind):
    model = wrap(build(), kind)
    torch.save(whole(model), f"{len(layers_of(model))}.pt")
