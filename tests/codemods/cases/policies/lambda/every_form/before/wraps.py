import functools

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import lambda_auto_wrap_policy

from model import Block


def of_an_attribute(model):
    model = FSDP(
        module=model,
        auto_wrap_policy=functools.partial(
            lambda_auto_wrap_policy, lambda_fn=lambda m: m in model.blocks
        ),
        device_id=torch.device("cpu"),
    )
    return model


def of_a_list(model):
    model = FSDP(
        model,
        auto_wrap_policy=functools.partial(
            lambda_auto_wrap_policy, lambda_fn=lambda m: m in list(model.blocks)
        ),
        device_id=torch.device("cpu"),
    )
    return model


def of_what_a_method_gave(model):
    wanted = model.modules_to_wrap()
    return FSDP(
        model,
        auto_wrap_policy=functools.partial(
            lambda_auto_wrap_policy, lambda_fn=lambda m: m in wanted
        ),
        device_id=torch.device("cpu"),
    )


def of_what_a_method_gives(model):
    return FSDP(
        model,
        auto_wrap_policy=functools.partial(
            lambda_auto_wrap_policy, lambda_fn=lambda m: m in model.modules_to_wrap()
        ),
        device_id=torch.device("cpu"),
    )


def by_a_function(model):
    def pick(module):
        return module is model.head or isinstance(module, Block)

    policy = functools.partial(lambda_auto_wrap_policy, lambda_fn=pick)
    return FSDP(model, auto_wrap_policy=policy, device_id=torch.device("cpu"))


def by_a_protocol(model):
    return FSDP(
        model,
        auto_wrap_policy=functools.partial(
            lambda_auto_wrap_policy, lambda_fn=model.fsdp_wrap_fn
        ),
        device_id=torch.device("cpu"),
    )


def by_a_protocol_if_there(model):
    wrap_fn = getattr(model, "fsdp_wrap_fn", None)
    policy = None
    if wrap_fn is not None:
        policy = functools.partial(lambda_auto_wrap_policy, lambda_fn=wrap_fn)
    return FSDP(model, auto_wrap_policy=policy, device_id=torch.device("cpu"))


FORMS = [
    of_an_attribute,
    of_a_list,
    of_what_a_method_gave,
    of_what_a_method_gives,
    by_a_function,
    by_a_protocol,
    by_a_protocol_if_there,
]
