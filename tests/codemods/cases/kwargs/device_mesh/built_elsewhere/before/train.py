import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy

from meshes import Meshes, by_sizes, hsdp_mesh
from model import Model, batch, loss_of


class Trainer:
    def __init__(self, meshes):
        self.meshes = meshes
        self.model = FSDP(
            Model(),
            device_mesh=self.meshes.ranks,
            sharding_strategy=ShardingStrategy.HYBRID_SHARD,
            device_id=torch.device("cpu"),
            use_orig_params=True,
        )


def shard(model, mesh):
    return FSDP(
        model,
        device_mesh=mesh,
        sharding_strategy=ShardingStrategy._HYBRID_SHARD_ZERO2,
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )


def run(model):
    loss = loss_of(model, batch(0))
    loss.backward()
    return {"model": model, "loss": loss.item()}


def main(out):
    return {
        "attribute": run(Trainer(Meshes()).model),
        "function": run(shard(Model(), hsdp_mesh(1, 2))),
        "sizes": run(shard(Model(), by_sizes((1, 2)))),
    }
