import functools

import torch

from fsdp2_sharding import (
    CPUOffload,
    MixedPrecision,
    ShardingStrategy,
    lambda_auto_wrap_policy,
    transformer_auto_wrap_policy,
)
from model import Block


def precision_of(master):
    dtype = torch.float32 if master == "fp32" else torch.bfloat16
    return MixedPrecision(
        param_dtype=dtype,
        reduce_dtype=torch.float32,
        buffer_dtype=torch.float32,
        cast_forward_inputs=False,
    )


def policy_for(model):
    return functools.partial(
        lambda_auto_wrap_policy, lambda_fn=lambda module: module is model.head
    )


def get_fsdp_kwargs(strategy, use_lora=False, cpu_offload=False, master="fp32"):
    no_split_modules = (Block,)
    if use_lora:
        auto_wrap_policy = policy_for
    else:
        auto_wrap_policy = functools.partial(
            transformer_auto_wrap_policy, transformer_layer_cls=no_split_modules
        )
    if strategy == "full":
        strategy = ShardingStrategy.FULL_SHARD
    elif strategy == "hybrid_zero2":
        strategy = ShardingStrategy._HYBRID_SHARD_ZERO2
    elif strategy == "none":
        strategy = ShardingStrategy.NO_SHARD
        auto_wrap_policy = None
    fsdp_kwargs = {
        "auto_wrap_policy": auto_wrap_policy,
        "mixed_precision": precision_of(master),
        "sharding_strategy": strategy,
        "device_id": torch.device("cpu"),
        "cpu_offload": CPUOffload(offload_params=True) if cpu_offload else None,
    }
    if use_lora:
        fsdp_kwargs.update({"sync_module_states": True})
    return fsdp_kwargs, no_split_modules
