import functools

import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy, transformer_auto_wrap_policy

from model import Block
from policies import LAYERS, get_policy

CPU = torch.device("cpu")
BY_NAME = {"block": Block, "embedding": nn.Embedding}


def set_literal(model):
    policy = functools.partial(
        transformer_auto_wrap_policy, transformer_layer_cls={Block}
    )
    return FSDP(model, auto_wrap_policy=policy, device_id=torch.device("cpu"))


def several_classes(model):
    policy = functools.partial(
        transformer_auto_wrap_policy,
        transformer_layer_cls={
            Block,
            nn.Embedding,
        },
    )
    return FSDP(model, auto_wrap_policy=policy, device_id=CPU)


def a_tuple(model):
    policy = functools.partial(
        transformer_auto_wrap_policy, transformer_layer_cls=(Block,)
    )
    return FSDP(model, auto_wrap_policy=policy, device_id=torch.device("cpu"))


def a_list(model):
    return FSDP(
        model,
        auto_wrap_policy=functools.partial(
            transformer_auto_wrap_policy, transformer_layer_cls=[Block, nn.Embedding]
        ),
        device_id=torch.device("cpu"),
    )


def set_call(model):
    policy = functools.partial(
        transformer_auto_wrap_policy, transformer_layer_cls=set([Block])
    )
    return FSDP(model, auto_wrap_policy=policy, device_id=torch.device("cpu"))


def a_name(model):
    layers = {Block}
    policy = functools.partial(
        transformer_auto_wrap_policy, transformer_layer_cls=layers
    )
    return FSDP(model, auto_wrap_policy=policy, device_id=torch.device("cpu"))


def a_constant(model):
    policy = functools.partial(
        transformer_auto_wrap_policy, transformer_layer_cls=LAYERS
    )
    return FSDP(model, auto_wrap_policy=policy, device_id=torch.device("cpu"))


def a_condition(model, with_embedding=True):
    layers = {Block, nn.Embedding} if with_embedding else {Block}
    policy = functools.partial(
        transformer_auto_wrap_policy, transformer_layer_cls=layers
    )
    return FSDP(model, auto_wrap_policy=policy, device_id=torch.device("cpu"))


def computed(model):
    # The first block is sharded last: by then its class is another.
    policy = functools.partial(
        transformer_auto_wrap_policy, transformer_layer_cls={type(model.blocks[-1])}
    )
    return FSDP(model, auto_wrap_policy=policy, device_id=torch.device("cpu"))


def looked_up(model, names=("block",)):
    layers = {BY_NAME[name] for name in names}
    policy = functools.partial(
        transformer_auto_wrap_policy, transformer_layer_cls=layers
    )
    return FSDP(model, auto_wrap_policy=policy, device_id=torch.device("cpu"))


def from_another_module(model):
    return FSDP(model, auto_wrap_policy=get_policy(), device_id=torch.device("cpu"))


def own_function(model):
    def policy(module, recurse, **kwargs):
        return True if recurse else isinstance(module, Block)

    return FSDP(model, auto_wrap_policy=policy, device_id=torch.device("cpu"))


def by_class(model):
    return FSDP(
        model,
        auto_wrap_policy=ModuleWrapPolicy([Block, nn.Embedding]),
        device_id=torch.device("cpu"),
    )


FORMS = [
    set_literal,
    several_classes,
    a_tuple,
    a_list,
    set_call,
    a_name,
    a_constant,
    a_condition,
    computed,
    looked_up,
    from_another_module,
    own_function,
    by_class,
]
