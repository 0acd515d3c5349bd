import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from model import Net


def main(rank):
    model = FSDP(Net())
    torch.manual_seed(17 + rank)  # other batches on each rank
    return model
