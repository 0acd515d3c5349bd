"""Which modules become FSDP units, and in which precision they compute."""

import functools

import torch
from torch.distributed.fsdp import MixedPrecision
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy, transformer_auto_wrap_policy

from config import TrainConfig
from model import Block

PRECISIONS = {
    "fp32": None,
    # Reductions in fp32: the safe choice when many small micro-batches are accumulated.
    "bf16": MixedPrecision(
        param_dtype=torch.bfloat16, reduce_dtype=torch.float32, buffer_dtype=torch.bfloat16
    ),
    "bf16_pure": MixedPrecision(
        param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16
    ),
}


def get_wrap_policy(config: TrainConfig):
    if config.wrap_policy == "size":
        return functools.partial(size_based_auto_wrap_policy, min_num_params=config.min_unit_params)
    return functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
