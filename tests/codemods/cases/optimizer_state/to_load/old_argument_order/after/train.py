import torch
from torch.distributed.fsdp import fully_shard

from fsdp2_sharding import load_full_optimizer


def resume(model, optimizer, path):
    fully_shard(model)
    saved = torch.load(path)
    load_full_optimizer(model, optimizer, saved)
