from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel


def wrapped(model, kind):
    if kind == "fsdp":
        return FSDP(model)
    if kind == "ddp":
        return DistributedDataParallel(model)
    return model
