from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def blocks(width):
    return nn.ModuleList([FSDP(nn.Linear(width, width))])  # fsdp-migrate: ignore


def more_blocks(blocks):
    return [FSDP(block) for block in blocks]  # fsdp-migrate: ignore
