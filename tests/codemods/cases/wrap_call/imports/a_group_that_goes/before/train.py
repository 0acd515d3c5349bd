from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from settings.sharding import C


def wrap(model):
    return FSDP(model, sharding_strategy=C.s, use_orig_params=True)
