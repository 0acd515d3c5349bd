import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build():
    return FSDP(torch.nn.Linear(4, 4))
