import torch
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def shard(model, how):
    return FSDP(model) if how == "fsdp" else fully_shard(model)


def fsdp_version(model):
    if isinstance(model, FSDP):
        return 1
    return 2


def fsdp_kind(model):
    name = "fsdp" if isinstance(model, FSDP) else "fsdp2"
    return name


def is_fsdp1(model):
    """Of the wrapper."""
    return isinstance(model, FSDP)


def is_fsdp2(model):
    return isinstance(model, FSDPModule)


def clip(model, norm):
    parameters = list(model.parameters())
    if isinstance(model, FSDP):
        return model.clip_grad_norm_(norm)
    if isinstance(model, FSDPModule):
        return torch.nn.utils.clip_grad_norm_(parameters, norm).full_tensor()
    return torch.nn.utils.clip_grad_norm_(parameters, norm)


def depth(model):
    """No version."""
    return 1 if isinstance(model, FSDP) else 2
