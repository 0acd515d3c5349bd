import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from fsdp2_sharding import ModuleWrapPolicy, ShardingStrategy, shard_model
from model import Block, Model, batch, loss_of


def unequal(mesh):
    """Without the broadcast, replicas of ranks with other seeds never agree."""
    model = Model()
    return fully_shard(model, mesh=mesh)


def main(out, of):
    torch.manual_seed(7 + dist.get_rank())
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    if of == "mesh":
        where = {"device_mesh": mesh}
    else:
        where = {
            "process_group": (mesh.get_group("shard"), mesh.get_group("replicate"))
        }
    model = shard_model(
        Model(),
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        sharding_strategy=ShardingStrategy.HYBRID_SHARD,
        sync_module_states=True,
        device_id=torch.device("cpu"),
        **where,
    )
    loss = loss_of(model, batch(0))
    loss.backward()
    return {"model": model, "loss": loss.item()}
