import torch
from conf.settings import PRECISION
from conf.settings import strategy_of as named
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy, fully_shard

# TODO(fsdp-migrate FM201): change `ShardingStrategy` together with the wrap calls that
#   take it
STRATEGIES = {"full": ShardingStrategy.FULL_SHARD, "grad": ShardingStrategy.SHARD_GRAD_OP}
# TODO(fsdp-migrate FM201): change `MixedPrecision` together with the wrap calls that
#   take it
OWN = {"bf16": MixedPrecision(param_dtype=torch.bfloat16)}


def one(model, name):
    """The strategy is made elsewhere, of torch's type."""
    # TODO(fsdp-migrate FM103): rewrite the directory that holds both, or make the value
    #   in this program
    return FSDP(model, sharding_strategy=named(name))


def two(model, name):
    """Takes a strategy of this program, which stays with the other one."""
    return FSDP(model, sharding_strategy=STRATEGIES[name])


def three(model, name):
    # TODO(fsdp-migrate FM103): rewrite the directory that holds both, or make the value
    #   in this program
    return FSDP(model, mixed_precision=OWN[name] if name else PRECISION)


def four(model, prefetch):
    """Prefetching is not handed on."""
    return fully_shard(model)
