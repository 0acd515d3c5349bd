import torch
from torch.distributed.fsdp import fully_shard


def init(module):
    if isinstance(module, torch.nn.Linear):
        torch.nn.init.normal_(module.weight)


def build(model):
    model.apply(init)
    fully_shard(model)
    # TODO(fsdp-migrate FM310): random numbers filled into DTensors are other numbers:
    #   initialise before sharding, or check that the function sets constants
    model.apply(init)
    return model
