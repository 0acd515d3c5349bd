import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from model import Block, Model, batch, loss_of


def unequal(mesh):
    """Without the broadcast, replicas of ranks with other seeds never agree."""
    return FSDP(
        Model(), device_mesh=mesh, sharding_strategy=ShardingStrategy.HYBRID_SHARD
    )


def main(out, of):
    torch.manual_seed(7 + dist.get_rank())
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    if of == "mesh":
        where = {"device_mesh": mesh}
    else:
        where = {
            "process_group": (mesh.get_group("shard"), mesh.get_group("replicate"))
        }
    model = FSDP(
        Model(),
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        sharding_strategy=ShardingStrategy.HYBRID_SHARD,
        sync_module_states=True,
        device_id=torch.device("cpu"),
        use_orig_params=True,
        **where,
    )
    loss = loss_of(model, batch(0))
    loss.backward()
    return {"model": model, "loss": loss.item()}
