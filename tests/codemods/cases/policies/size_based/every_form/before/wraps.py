import functools

import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy


def with_a_threshold(model):
    policy = functools.partial(size_based_auto_wrap_policy, min_num_params=600)
    return FSDP(model, auto_wrap_policy=policy, device_id=torch.device("cpu"))


def threshold_is_a_product(model, millions=0.0006):
    return FSDP(
        model,
        auto_wrap_policy=functools.partial(
            size_based_auto_wrap_policy, min_num_params=int(millions * 1e6)
        ),
        device_id=torch.device("cpu"),
    )


def by_default(model):
    return FSDP(
        model,
        auto_wrap_policy=size_based_auto_wrap_policy,
        device_id=torch.device("cpu"),
    )


def with_exceptions(model):
    policy = functools.partial(
        size_based_auto_wrap_policy,
        min_num_params=100,
        force_leaf_modules={nn.ModuleList},
        exclude_wrap_modules={nn.Embedding, nn.ModuleList},
    )
    return FSDP(model, auto_wrap_policy=policy, device_id=torch.device("cpu"))


FORMS = [with_a_threshold, threshold_is_a_product, by_default, with_exceptions]
