import torch
from torch.distributed.fsdp import fully_shard


def build(model):
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    return model, optimizer
