import torch
from torch.distributed.fsdp import fully_shard


def make_optimizer(model):
    return torch.optim.AdamW(model.parameters())


def build(model):
    fully_shard(model)
    optimizer = make_optimizer(model)
    return model, optimizer
