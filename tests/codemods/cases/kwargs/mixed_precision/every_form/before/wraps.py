import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from model import Block
from precisions import bfSixteen, bfSixteen_mixed, fpSixteen


def chosen_constants(model, ready=True, mixed=True, pure=False):
    policy = None
    if mixed:
        if ready:
            policy = bfSixteen
        else:
            policy = fpSixteen
    return FSDP(
        model,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        mixed_precision=policy if not pure else None,
        device_id=torch.device("cpu"),
    )


def a_constant(model):
    return FSDP(model, mixed_precision=bfSixteen_mixed, device_id=torch.device("cpu"))


def by_name(model, name="bfloat16"):
    dtype = getattr(torch, name) if name is not None else None
    policy = MixedPrecision(param_dtype=dtype, reduce_dtype=dtype, buffer_dtype=dtype)
    return FSDP(model, mixed_precision=policy, device_id=torch.device("cpu"))


def by_no_name(model):
    return by_name(model, None)


def explicit_none(model):
    return FSDP(model, mixed_precision=None, device_id=torch.device("cpu"))


def reduce_only(model):
    policy = MixedPrecision(reduce_dtype=torch.bfloat16)
    return FSDP(model, mixed_precision=policy, device_id=torch.device("cpu"))


def positional(model):
    return FSDP(
        model,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        mixed_precision=MixedPrecision(torch.bfloat16, torch.float32),
        device_id=torch.device("cpu"),
    )


def casts_nothing(model):
    policy = MixedPrecision(
        param_dtype=torch.float32,
        reduce_dtype=torch.float32,
        buffer_dtype=torch.float32,
        cast_forward_inputs=False,
    )
    return FSDP(
        model,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        mixed_precision=policy,
        device_id=torch.device("cpu"),
    )


def root_casts_nothing(model):
    return FSDP(
        model,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        mixed_precision=MixedPrecision(
            param_dtype=torch.bfloat16, cast_root_forward_inputs=False
        ),
        device_id=torch.device("cpu"),
    )


def from_a_mapping(model):
    settings = {"param_dtype": torch.bfloat16, "reduce_dtype": torch.float32}
    policy = MixedPrecision(**settings)
    return FSDP(model, mixed_precision=policy, device_id=torch.device("cpu"))


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
