from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


def shard(model, how):
    if how == "fsdp":
        return FSDP(model)
    elif how == "fsdp2":
        return fully_shard(model)
    else:
        return DistributedDataParallel(model)
