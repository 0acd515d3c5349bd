import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def init(module):
    if isinstance(module, torch.nn.Linear):
        torch.nn.init.normal_(module.weight)


def build(model):
    model.apply(init)
    model = FSDP(model)
    model.apply(init)
    return model
