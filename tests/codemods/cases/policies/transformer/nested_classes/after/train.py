import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from model import Block, Model, batch, loss_of


class Pair(torch.nn.Module):
    """A unit that holds units."""

    def __init__(self, width):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(width))
        self.blocks = torch.nn.Sequential(Block(width), Block(width))

    def forward(self, x):
        return self.blocks(x * self.scale)


def main(out):
    model = Model()
    model.blocks = torch.nn.ModuleList([Pair(16), Block(16)])
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in reversed(list(model.modules())):  # children before parents
        if isinstance(module, (Pair, Block)):
            fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    loss = loss_of(model, batch(0))
    loss.backward()
    return {"model": model, "loss": loss.item()}
