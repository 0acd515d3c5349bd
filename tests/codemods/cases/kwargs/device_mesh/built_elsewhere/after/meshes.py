import torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh


class Meshes:
    def __init__(self):
        self.ranks = DeviceMesh(
            "cpu", torch.arange(2).reshape(1, 2), mesh_dim_names=("replicate", "shard")
        )


def hsdp_mesh(replicas, shards, device=None):
    device = device or "cpu"
    mesh = init_device_mesh(
        device, (replicas, shards), mesh_dim_names=("replicate", "shard")
    )
    if mesh is None:
        raise RuntimeError("no mesh")
    return mesh


def by_sizes(sizes):
    return init_device_mesh(
        "cpu", mesh_shape=sizes, mesh_dim_names=("replicate", "shard")
    )
