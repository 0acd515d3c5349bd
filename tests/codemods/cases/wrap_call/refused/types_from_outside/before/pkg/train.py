import torch
from conf.settings import PRECISION
from conf.settings import strategy_of as named
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy

STRATEGIES = {"full": ShardingStrategy.FULL_SHARD, "grad": ShardingStrategy.SHARD_GRAD_OP}
OWN = {"bf16": MixedPrecision(param_dtype=torch.bfloat16)}


def one(model, name):
    """The strategy is made elsewhere, of torch's type."""
    return FSDP(model, sharding_strategy=named(name))


def two(model, name):
    """Takes a strategy of this program, which stays with the other one."""
    return FSDP(model, sharding_strategy=STRATEGIES[name])


def three(model, name):
    return FSDP(model, mixed_precision=OWN[name] if name else PRECISION)


def four(model, prefetch):
    """Prefetching is not handed on."""
    return FSDP(model, backward_prefetch=prefetch)
