import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from fsdp2_sharding import shard_model
from model import Block
from policies import LAYERS, get_policy

CPU = torch.device("cpu")
BY_NAME = {"block": Block, "embedding": nn.Embedding}


def set_literal(model):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in reversed(list(model.modules())):  # children before parents
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def several_classes(model):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in reversed(list(model.modules())):  # children before parents
        if isinstance(module, (Block, nn.Embedding)):
            fully_shard(module, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def a_tuple(model):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in reversed(list(model.modules())):  # children before parents
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def a_list(model):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in reversed(list(model.modules())):  # children before parents
        if isinstance(module, (Block, nn.Embedding)):
            fully_shard(module, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def set_call(model):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    layer_classes = tuple(set([Block]))
    for module in reversed(list(model.modules())):  # children before parents
        if isinstance(module, layer_classes):
            fully_shard(module, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def a_name(model):
    layers = {Block}
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in reversed(list(model.modules())):  # children before parents
        if isinstance(module, tuple(layers)):
            fully_shard(module, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def a_constant(model):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in reversed(list(model.modules())):  # children before parents
        if isinstance(module, tuple(LAYERS)):
            fully_shard(module, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def a_condition(model, with_embedding=True):
    layers = {Block, nn.Embedding} if with_embedding else {Block}
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in reversed(list(model.modules())):  # children before parents
        if isinstance(module, tuple(layers)):
            fully_shard(module, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def computed(model):
    # The first block is sharded last: by then its class is another.
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    layer_classes = type(model.blocks[-1])
    for module in reversed(list(model.modules())):  # children before parents
        if isinstance(module, layer_classes):
            fully_shard(module, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def looked_up(model, names=("block",)):
    layers = {BY_NAME[name] for name in names}
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in reversed(list(model.modules())):  # children before parents
        if isinstance(module, tuple(layers)):
            fully_shard(module, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def from_another_module(model):
    return shard_model(
        model, auto_wrap_policy=get_policy(), device_id=torch.device("cpu")
    )


def own_function(model):
    def policy(module, recurse, **kwargs):
        return True if recurse else isinstance(module, Block)

    return shard_model(model, auto_wrap_policy=policy, device_id=torch.device("cpu"))


def by_class(model):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in reversed(list(model.modules())):  # children before parents
        if isinstance(module, (Block, nn.Embedding)):
            fully_shard(module, mesh=mesh)
    return fully_shard(model, mesh=mesh)


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
