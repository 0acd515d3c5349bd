import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from checkpoints import Checkpointer
from model import Block, Model, batch, loss_of


def keys(model):
    """Nothing here looks like FSDP."""
    return sorted(
        get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    )


def on_cpu(model):
    state = {
        name: value.cpu()
        for name, value in get_model_state_dict(
            model, options=StateDictOptions(full_state_dict=True)
        ).items()
    }
    return state


def taken(model):
    # TODO(fsdp-migrate FM402): use `get_model_state_dict(model,
    #   options=StateDictOptions(full_state_dict=True))` for whole tensors or
    #   `get_model_state_dict(model)` for shards, from
    #   `torch.distributed.checkpoint.state_dict`
    save = model.state_dict
    return save


def main(out):
    sharded = Model()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in reversed(list(sharded.modules())):  # children before parents
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    optimizer = torch.optim.AdamW(sharded.parameters(), lr=0.01)
    checkpointer = Checkpointer(sharded, out)
    loss_of(sharded, batch(0)).backward()
    optimizer.step()
    checkpointer.save()
    dist.barrier()
    names, state = keys(sharded), on_cpu(sharded)
    assert callable(taken(sharded))
    loss_of(sharded, batch(1)).backward()
    optimizer.step()
    checkpointer.load()
    return {"model": sharded, "names": names, "state": state}
