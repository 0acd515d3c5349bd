import functools

import torch

from fsdp2_sharding import CPUOffload, ShardingStrategy, size_based_auto_wrap_policy


def sharding_settings(strategy):
    return dict(
        sharding_strategy=ShardingStrategy[strategy],
        auto_wrap_policy=functools.partial(size_based_auto_wrap_policy, min_num_params=100),
        cpu_offload=CPUOffload(offload_params=False),
        device_id=torch.device("cpu"),
    )
