import torch
from torch.distributed.fsdp import BackwardPrefetch, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from model import Block


def sharding_settings(strategy):
    settings = {
        "sharding_strategy": ShardingStrategy[strategy],
        "auto_wrap_policy": lambda layers: ModuleWrapPolicy(layers),
        "backward_prefetch": BackwardPrefetch.BACKWARD_PRE,  # the default
        "device_id": torch.device("cpu"),
        "use_orig_params": True,
    }
    return settings, {Block}
