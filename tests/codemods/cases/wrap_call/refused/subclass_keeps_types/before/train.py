import torch
from config import PRECISION, Config
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision


class Wrapped(FSDP):
    """Takes its strategy from the configuration."""


def one(model, config: Config):
    precision = MixedPrecision(param_dtype=torch.bfloat16)
    return Wrapped(model, sharding_strategy=config.strategy, mixed_precision=precision)


def two(model, config: Config):
    """Stays with the type that the subclass takes too."""
    return FSDP(model, sharding_strategy=config.strategy, backward_prefetch=config.prefetch)


def three(model):
    """Says all of it."""
    model = FSDP(model, mixed_precision=MixedPrecision(param_dtype=torch.bfloat16))
    return model
