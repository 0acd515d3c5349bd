import torch
from torch.distributed.fsdp import fully_shard


def build():
    model = torch.nn.Linear(4, 4)
    return fully_shard(model)
