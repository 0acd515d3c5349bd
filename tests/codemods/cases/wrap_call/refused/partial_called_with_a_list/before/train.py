import functools

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

wrap = functools.partial(FSDP, device_id=torch.device("cpu"))


def shard(model, more):
    return wrap(model, *more)
