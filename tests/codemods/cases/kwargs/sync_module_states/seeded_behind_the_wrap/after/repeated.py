import torch

from model import Net
from torch.distributed.fsdp import fully_shard


def search(rank):
    models = []
    for trial in range(3):
        model = Net()
        fully_shard(model)
        models.append(model)
        torch.manual_seed(trial + rank)
    return models
