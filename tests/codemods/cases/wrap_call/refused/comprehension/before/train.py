from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from model import Block


def blocks(width, depth):
    return nn.ModuleList([FSDP(Block(width)) for _ in range(depth)])
