import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp.wrap import CustomPolicy

from fsdp2_sharding import MixedPrecision


def with_another_mesh(module):
    if isinstance(module, nn.Linear):
        # TODO(fsdp-migrate FM201): change `ShardingStrategy` together with the wrap
        #   calls that take it
        return {"sharding_strategy": ShardingStrategy.NO_SHARD}
    return isinstance(module, nn.Embedding)


def with_buffers(module):
    if not isinstance(module, nn.Linear):
        return False
    return {"mixed_precision": MixedPrecision(torch.float32, torch.float32, torch.float32)}


def of_the_caller(settings):
    def given(module):
        return settings if isinstance(module, nn.Linear) else False

    return given


def within_nodes(module):
    # TODO(fsdp-migrate FM201): change `ShardingStrategy` together with the wrap calls
    #   that take it
    return {"sharding_strategy": ShardingStrategy.FULL_SHARD} if module else False


def shard(models, settings):
    # TODO(fsdp-migrate FM201): change `ShardingStrategy` together with the wrap calls
    #   that take it
    hybrid = ShardingStrategy.HYBRID_SHARD
    # TODO(fsdp-migrate FM103): loop over the submodules by hand: fully_shard(unit, ...)
    #   with each unit's own arguments
    return (
        FSDP(models[0], auto_wrap_policy=CustomPolicy(with_another_mesh)),
        FSDP(models[1], auto_wrap_policy=CustomPolicy(with_buffers)),
        FSDP(models[2], auto_wrap_policy=CustomPolicy(of_the_caller(settings))),
        FSDP(models[3], sharding_strategy=hybrid, auto_wrap_policy=CustomPolicy(within_nodes)),
    )
