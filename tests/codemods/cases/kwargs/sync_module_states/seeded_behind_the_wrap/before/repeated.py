import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from model import Net


def search(rank):
    models = []
    for trial in range(3):
        model = FSDP(Net())
        models.append(model)
        torch.manual_seed(trial + rank)
    return models
