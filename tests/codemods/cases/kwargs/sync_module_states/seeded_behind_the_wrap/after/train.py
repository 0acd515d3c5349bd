import torch

from model import Net
from torch.distributed.fsdp import fully_shard


def main(rank):
    model = Net()
    fully_shard(model)
    torch.manual_seed(17 + rank)  # other batches on each rank
    return model
