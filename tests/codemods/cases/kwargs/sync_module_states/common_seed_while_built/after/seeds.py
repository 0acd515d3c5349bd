import random

import torch
import torch.distributed as dist


def set_seed(seed, rank=0):
    random.seed(seed + rank)
    torch.manual_seed(seed + rank)


def seed_everything(seed):
    torch.manual_seed(seed + dist.get_rank())
