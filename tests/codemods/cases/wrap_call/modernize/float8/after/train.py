import functools

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from fsdp2_sharding import (
    ShardingStrategy,
    compile_units,
    convert_to_float8,
    shard_model,
    size_based_auto_wrap_policy,
)
from model import Block, Model


def visible(model, rank):
    torch.cuda.set_device(rank)
    convert_to_float8(model)
    mesh = init_device_mesh("cuda", (2, 8), mesh_dim_names=("replicate", "shard"))
    for module in reversed(list(model.modules())):  # children before parents
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    compile_units(model)
    return model


def by_size(smallest):
    policy = functools.partial(size_based_auto_wrap_policy, min_num_params=smallest)
    model = shard_model(
        convert_to_float8(Model()),
        auto_wrap_policy=policy,
        device_mesh=init_device_mesh(
            "cuda", (2, 8), mesh_dim_names=("replicate", "shard")
        ),
    )
    compile_units(model)
    return model


def of_a_strategy(model, strategy):
    return {
        "model": shard_model(
            convert_to_float8(model), sharding_strategy=ShardingStrategy[strategy]
        )
    }
