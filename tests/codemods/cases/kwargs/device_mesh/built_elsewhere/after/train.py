from torch.distributed.fsdp import fully_shard

from meshes import Meshes, by_sizes, hsdp_mesh
from model import Model, batch, loss_of


class Trainer:
    def __init__(self, meshes):
        self.meshes = meshes
        self.model = Model()
        fully_shard(self.model, mesh=self.meshes.ranks)


def shard(model, mesh):
    return fully_shard(model, mesh=mesh, reshard_after_forward=False)


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
