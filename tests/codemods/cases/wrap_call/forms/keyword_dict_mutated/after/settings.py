import torch

from fsdp2_sharding import ModuleWrapPolicy, ShardingStrategy
from model import Block


def sharding_settings(strategy):
    settings = {
        "sharding_strategy": ShardingStrategy[strategy],
        "auto_wrap_policy": lambda layers: ModuleWrapPolicy(layers),
        # the default
        "device_id": torch.device("cpu"),
    }
    return settings, {Block}
