from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
)
from torch.distributed.fsdp import FSDPModule, ShardingStrategy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


def checkpointed(model, policy):
    if isinstance(policy, set):
        policy = ModuleWrapPolicy(policy)
    apply_activation_checkpointing(model, auto_wrap_policy=policy)


def shard(model) -> FSDPModule:
    return fully_shard(model)


def strategy_named(name):
    # TODO(fsdp-migrate FM516): remove it where nothing needs it; elsewhere go by names
    #   or classes of your own
    return getattr(ShardingStrategy, name)
