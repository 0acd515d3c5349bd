from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard


def shard(model, how):
    if how == "fsdp":
        return FSDP(model)
    elif how == "fsdp2":
        return fully_shard(model)
    raise ValueError(how)
