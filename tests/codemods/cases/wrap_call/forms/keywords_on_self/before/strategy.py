import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from model import Block


class Strategy:
    def __init__(self, sharding_strategy="FULL_SHARD", bf16=False, **kwargs):
        self._kwargs = kwargs
        self._kwargs.setdefault("use_orig_params", True)
        self._kwargs["sharding_strategy"] = ShardingStrategy[sharding_strategy]
        if bf16:
            self._kwargs["mixed_precision"] = MixedPrecision(torch.bfloat16)

    def setup(self, module):
        module = FSDP(module=module, **self._kwargs)
        return module


def wrap_some(model, **kwargs):
    kwargs.pop("comment", None)
    return FSDP(model, device_id=torch.device("cpu"), **kwargs)


def wrap_two(policy, reference):
    shared = dict(
        sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
        device_id=torch.device("cpu"),
        ignored_modules=None,
        limit_all_gathers=False,
        use_orig_params=False,
    )
    own = {**shared, "mixed_precision": MixedPrecision(reduce_dtype=torch.bfloat16)}
    own["auto_wrap_policy"] = ModuleWrapPolicy({Block})
    return FSDP(policy, **own), FSDP(reference, **(shared | {"cpu_offload": None}))
