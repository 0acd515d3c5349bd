import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import CustomPolicy


def with_another_mesh(module):
    if isinstance(module, nn.Linear):
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
    return {"sharding_strategy": ShardingStrategy.FULL_SHARD} if module else False


def shard(models, settings):
    hybrid = ShardingStrategy.HYBRID_SHARD
    return (
        FSDP(models[0], auto_wrap_policy=CustomPolicy(with_another_mesh)),
        FSDP(models[1], auto_wrap_policy=CustomPolicy(with_buffers)),
        FSDP(models[2], auto_wrap_policy=CustomPolicy(of_the_caller(settings))),
        FSDP(models[3], sharding_strategy=hybrid, auto_wrap_policy=CustomPolicy(within_nodes)),
    )
