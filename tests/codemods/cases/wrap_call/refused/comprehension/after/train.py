from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from model import Block


def blocks(width, depth):
    # TODO(fsdp-migrate FM103): build the modules first, then shard each and the model
    #   around them with fully_shard
    return nn.ModuleList([FSDP(Block(width)) for _ in range(depth)])
