import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def shapes(model):
    model = FSDP(model)
    with FSDP.summon_full_params(model, writeback=False):
        whole = {name: tuple(p.shape) for name, p in model.named_parameters()}
        count = sum(p.numel() for p in model.parameters())
    parts = {name: tuple(p.shape) for name, p in model.named_parameters()}
    return whole, count, parts


def one(model):
    model = FSDP(model)
    with torch.no_grad(), FSDP.summon_full_params(model, writeback=False):
        whole = model.head.weight.norm()
    return whole, model.head.weight.norm()
