from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


def shard(model, how):
    if how in ("fsdp", "fsdp2"):
        return fully_shard(model)
    else:
        return DistributedDataParallel(model)
