import functools

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from fsdp2_sharding import (
    checkpoint_units,
    prefetch_units,
    shard_model,
    size_based_auto_wrap_policy,
)
from model import Model, batch, loss_of


class Trainer:
    def __init__(self, model, smallest):
        policy = functools.partial(size_based_auto_wrap_policy, min_num_params=smallest)
        self.model = shard_model(
            model,
            auto_wrap_policy=policy,
            device_id=torch.device("cpu"),
            device_mesh=init_device_mesh(
                "cpu", (1, 2), mesh_dim_names=("replicate", "shard")
            ),
        )
        checkpoint_units(self.model)
        prefetch_units(self.model, ahead=1)


def wrapped(model, smallest):
    policy = functools.partial(size_based_auto_wrap_policy, min_num_params=smallest)
    return [
        shard_model(
            model,
            auto_wrap_policy=policy,
            device_mesh=init_device_mesh(
                "cuda", (1, 2), mesh_dim_names=("replicate", "shard")
            ),
        )
    ]


SHARED = Model(depth=1)


def shared(smallest):
    policy = functools.partial(size_based_auto_wrap_policy, min_num_params=smallest)
    sharded = shard_model(
        SHARED,
        auto_wrap_policy=policy,
        device_mesh=init_device_mesh(
            "cuda", (1, 2), mesh_dim_names=("replicate", "shard")
        ),
    )
    checkpoint_units(sharded)
    prefetch_units(sharded, ahead=1)
    return sharded


def whole(model):
    return fully_shard(
        model,
        mesh=init_device_mesh("cuda", (1, 2), mesh_dim_names=("replicate", "shard")),
    )


def main(out, smallest=500):
    model = Trainer(Model(depth=4), smallest).model
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"model": model, "losses": losses}
