import torch
from torch.distributed.fsdp.wrap import enable_wrap

from fsdp2_sharding import MixedPrecision, ShardingStrategy, shard_model

STRATEGIES = {"full": ShardingStrategy.FULL_SHARD, "grad": ShardingStrategy.SHARD_GRAD_OP}


def build(make, name):
    """What is wrapped is wrapped in `make`."""
    precision = MixedPrecision(param_dtype=torch.bfloat16)
    with enable_wrap(
        wrapper_cls=shard_model,
        sharding_strategy=STRATEGIES[name],
        mixed_precision=precision,
    ):
        return make()


def whole(model, name):
    return shard_model(model, sharding_strategy=STRATEGIES[name])
