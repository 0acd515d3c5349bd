import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import enable_wrap

STRATEGIES = {"full": ShardingStrategy.FULL_SHARD, "grad": ShardingStrategy.SHARD_GRAD_OP}


def build(make, name, wrapper=FSDP):
    """What is wrapped is wrapped in `make`."""
    precision = MixedPrecision(param_dtype=torch.bfloat16)
    with enable_wrap(wrapper_cls=wrapper, sharding_strategy=STRATEGIES[name], mixed_precision=precision):
        return make()


def whole(model, name):
    return FSDP(model, sharding_strategy=STRATEGIES[name])
