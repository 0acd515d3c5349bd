from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard


def shard(model, version):
    if version == 1:
        model = FSDP(model)
    elif version == 2:
        fully_shard(model)
    return model
