from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


def shard(model, how):
    # TODO(fsdp-migrate FM121): remove the FSDP1 branch, and refuse what used to choose
    #   it
    if how == "fsdp":
        return fully_shard(model)
    elif how == "fsdp2":
        return fully_shard(model)
    else:
        return DistributedDataParallel(model)
