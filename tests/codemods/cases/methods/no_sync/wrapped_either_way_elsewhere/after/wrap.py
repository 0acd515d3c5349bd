from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


def wrapped(model, kind):
    if kind == "fsdp":
        return fully_shard(model)
    if kind == "ddp":
        return DistributedDataParallel(model)
    return model
