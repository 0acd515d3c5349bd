import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from fsdp2_sharding import clip_grad_norm_


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, 16, bias=False)
        self.down = nn.Linear(16, 8, bias=False)

    def forward(self, x):
        return self.down(torch.relu(self.up(self.norm(x))))


def build(mesh):
    torch.manual_seed(0)
    model = Net()
    parallelize_module(model, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return fully_shard(model, mesh=mesh["dp"])


def main(out):
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("dp", "tp"))
    model = build(mesh)
    x = torch.arange(32.0).reshape(4, 8) * (1 + mesh["dp"].get_local_rank()) / 8
    model(x).square().mean().backward()
    norm = clip_grad_norm_(model.parameters(), 0.1)
    return {"norm": round(norm.item(), 4)}


def by_torch(mesh, batch):
    model = build(mesh)
    model(batch).sum().backward()
    # TODO(fsdp-migrate FM302): where such gradients are made use the helper module's
    #   `clip_grad_norm_`, which `--unsafe-fixes` writes; expect other numbers than
    #   before (these are right)
    return torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
