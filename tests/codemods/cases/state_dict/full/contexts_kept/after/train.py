import contextlib

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from fsdp2_sharding import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    StateDictType,
    model_state_dict,
    optim_state_dict,
    state_dict_type,
)
from model import Model, batch, loss_of


def whole(module):
    """The context to save in."""
    return state_dict_type(
        module,
        StateDictType.FULL_STATE_DICT,
        FullStateDictConfig(offload_to_cpu=True, rank0_only=True),
        FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True),
    )


@contextlib.contextmanager
def saving(module):
    with whole(module):
        yield


def main(out):
    torch.manual_seed(3)
    actor = Model()
    fully_shard(actor, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    critic = Model()
    fully_shard(critic, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.AdamW(actor.parameters(), lr=0.01)
    (loss_of(actor, batch(0)) + loss_of(critic, batch(0))).backward()
    optimizer.step()
    config = StateDictOptions(full_state_dict=True, cpu_offload=True)
    saved = {
        "actor": get_model_state_dict(actor, options=config),
        "critic": model_state_dict(critic),
    }
    with whole(actor):
        weights = model_state_dict(actor)
        moments = optim_state_dict(actor, optimizer)
    with saving(critic):
        again = model_state_dict(critic)
    if dist.get_rank() == 0:
        torch.save(saved, out / "saved.pt")
        torch.save([weights, moments, again], out / "state.pt")
    return {"sizes": [len(weights), len(moments), len(again)]}
