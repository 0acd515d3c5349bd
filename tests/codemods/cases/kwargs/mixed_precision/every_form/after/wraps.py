from dataclasses import replace

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from fsdp2_sharding import MixedPrecision, ModuleWrapPolicy, shard_model
from model import Block
from precisions import bfSixteen, bfSixteen_mixed, fpSixteen


def chosen_constants(model, ready=True, mixed=True, pure=False):
    policy = None
    if mixed:
        if ready:
            policy = bfSixteen
        else:
            policy = fpSixteen
    return shard_model(
        model,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        mixed_precision=policy if not pure else None,
        device_id=torch.device("cpu"),
    )


def a_constant(model):
    return shard_model(
        model, mixed_precision=bfSixteen_mixed, device_id=torch.device("cpu")
    )


def by_name(model, name="bfloat16"):
    dtype = getattr(torch, name) if name is not None else None
    precision = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=dtype)
    fully_shard(
        model,
        mesh=init_device_mesh("cpu", (dist.get_world_size(),)),
        mp_policy=precision,
    )
    for buffer in model.buffers():
        if buffer.is_floating_point():
            buffer.data = buffer.data.to(dtype)
    return model


def by_no_name(model):
    return by_name(model, None)


def explicit_none(model):
    return fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))


def reduce_only(model):
    precision = MixedPrecisionPolicy(reduce_dtype=torch.bfloat16)
    return fully_shard(
        model,
        mesh=init_device_mesh("cpu", (dist.get_world_size(),)),
        mp_policy=precision,
    )


def positional(model):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    unit_precision = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16,
        reduce_dtype=torch.float32,
        cast_forward_inputs=False,
    )
    root_precision = replace(unit_precision, cast_forward_inputs=True)
    for module in reversed(list(model.modules())):  # children before parents
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh, mp_policy=unit_precision)
    return fully_shard(model, mesh=mesh, mp_policy=root_precision)


def casts_nothing(model):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    unit_precision = MixedPrecisionPolicy(
        param_dtype=torch.float32, reduce_dtype=torch.float32, cast_forward_inputs=False
    )
    root_precision = replace(unit_precision, cast_forward_inputs=True)
    for module in reversed(list(model.modules())):  # children before parents
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh, mp_policy=unit_precision)
    fully_shard(model, mesh=mesh, mp_policy=root_precision)
    for buffer in model.buffers():
        if buffer.is_floating_point():
            buffer.data = buffer.data.to(torch.float32)
    return model


def root_casts_nothing(model):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    precision = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16,
        reduce_dtype=torch.bfloat16,
        cast_forward_inputs=False,
    )
    for module in reversed(list(model.modules())):  # children before parents
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh, mp_policy=precision)
    return fully_shard(model, mesh=mesh, mp_policy=precision)


def from_a_mapping(model):
    settings = {"param_dtype": torch.bfloat16, "reduce_dtype": torch.float32}
    policy = MixedPrecision(**settings)
    return shard_model(model, mixed_precision=policy, device_id=torch.device("cpu"))


FORMS = [
    chosen_constants,
    a_constant,
    by_name,
    by_no_name,
    explicit_none,
    reduce_only,
    positional,
    casts_nothing,
    root_casts_nothing,
    from_a_mapping,
]
