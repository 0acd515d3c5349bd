import torch
from config import PRECISION, Config
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision, MixedPrecisionPolicy, fully_shard


# TODO(fsdp-migrate FM106): make it a function that calls fully_shard, and what it added
#   methods of the model
class Wrapped(FSDP):
    """Takes its strategy from the configuration."""


def one(model, config: Config):
    # TODO(fsdp-migrate FM201): change `MixedPrecision` together with the wrap calls
    #   that take it
    precision = MixedPrecision(param_dtype=torch.bfloat16)
    return Wrapped(model, sharding_strategy=config.strategy, mixed_precision=precision)


def two(model, config: Config):
    """Stays with the type that the subclass takes too."""
    return FSDP(model, sharding_strategy=config.strategy, backward_prefetch=config.prefetch)


def three(model):
    """Says all of it."""
    precision = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16
    )
    fully_shard(model, mp_policy=precision)
    return model
