"""FSDP2 (formerly `FullyShardedDataParallel`, `FSDP(model)`) for the models of this repository."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.nn.parallel import DistributedDataParallel as DDP

from model import Block


def make_mesh(replicas):
    world_size = dist.get_world_size()
    return init_device_mesh(
        "cuda",
        (replicas, world_size // replicas),
        mesh_dim_names=("dp_replicate", "dp_shard"),
    )


def shard(model: nn.Module, replicas: int, offload: bool, remat: bool) -> FSDPModule:
    if remat:
        apply_activation_checkpointing(
            model,
            checkpoint_wrapper_fn=checkpoint_wrapper,
            check_fn=lambda module: isinstance(module, Block),
        )
    precision = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16,
        reduce_dtype=torch.float32,
        cast_forward_inputs=False,
    )
    kwargs = {
        "mesh": make_mesh(replicas),
        "mp_policy": precision,
        "offload_policy": CPUOffloadPolicy() if offload else OffloadPolicy(),
    }
    for module in reversed(list(model.modules())):
        if isinstance(module, Block):
            fully_shard(module, **kwargs)
    fully_shard(model, reshard_after_forward=False, **kwargs)
    register_fsdp_forward_method(model, "generate")
    blocks = list(model.blocks)
    for one, two in zip(blocks, blocks[1:]):
        one.set_modules_to_forward_prefetch([two])
    return model


def no_sync(model, is_last):
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(is_last)
        return None
    assert isinstance(model, DDP)
    return model.no_sync()


def reshard(model):
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
