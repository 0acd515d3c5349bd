import torch

from fsdp2_sharding import (
    MixedPrecision,
    ModuleWrapPolicy,
    ShardingStrategy,
    shard_model,
)
from model import Block


class Strategy:
    def __init__(self, sharding_strategy="FULL_SHARD", bf16=False, **kwargs):
        self._kwargs = kwargs
        self._kwargs.setdefault("use_orig_params", True)
        self._kwargs["sharding_strategy"] = ShardingStrategy[sharding_strategy]
        if bf16:
            self._kwargs["mixed_precision"] = MixedPrecision(torch.bfloat16)

    def setup(self, module):
        module = shard_model(model=module, **self._kwargs)
        return module


def wrap_some(model, **kwargs):
    kwargs.pop("comment", None)
    return shard_model(model, device_id=torch.device("cpu"), **kwargs)


def wrap_two(policy, reference):
    shared = dict(
        sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
        device_id=torch.device("cpu"),
    )
    own = {**shared, "mixed_precision": MixedPrecision(reduce_dtype=torch.bfloat16)}
    own["auto_wrap_policy"] = ModuleWrapPolicy({Block})
    return shard_model(policy, **own), shard_model(
        reference, **(shared | {"cpu_offload": None})
    )
