import functools

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from fsdp2_sharding import lambda_auto_wrap_policy, shard_model
from model import Block


def of_an_attribute(model):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for m in reversed(list(model.modules())):  # children before parents
        if m is not model and m in model.blocks:
            fully_shard(m, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def of_a_list(model):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for m in reversed(list(model.modules())):  # children before parents
        if m is not model and m in list(model.blocks):
            fully_shard(m, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def of_what_a_method_gave(model):
    wanted = model.modules_to_wrap()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for m in reversed(list(model.modules())):  # children before parents
        if m is not model and m in wanted:
            fully_shard(m, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def of_what_a_method_gives(model):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for m in reversed(list(model.modules())):  # children before parents
        if m is not model and m in model.modules_to_wrap():
            fully_shard(m, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def by_a_function(model):
    def pick(module):
        return module is model.head or isinstance(module, Block)

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in reversed(list(model.modules())):  # children before parents
        if module is not model and pick(module):
            fully_shard(module, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def by_a_protocol(model):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in reversed(list(model.modules())):  # children before parents
        if module is not model and model.fsdp_wrap_fn(module):
            fully_shard(module, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def by_a_protocol_if_there(model):
    wrap_fn = getattr(model, "fsdp_wrap_fn", None)
    policy = None
    if wrap_fn is not None:
        policy = functools.partial(lambda_auto_wrap_policy, lambda_fn=wrap_fn)
    return shard_model(model, auto_wrap_policy=policy, device_id=torch.device("cpu"))


FORMS = [
    of_an_attribute,
    of_a_list,
    of_what_a_method_gave,
    of_what_a_method_gives,
    by_a_function,
    by_a_protocol,
    by_a_protocol_if_there,
]
