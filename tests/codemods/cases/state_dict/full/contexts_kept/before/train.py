import contextlib

import torch
import torch.distributed as dist
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    StateDictType,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from model import Model, batch, loss_of


def whole(module):
    """The context to save in."""
    return FSDP.state_dict_type(
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
    actor = FSDP(Model(), device_id=torch.device("cpu"))
    critic = FSDP(Model(), device_id=torch.device("cpu"))
    optimizer = torch.optim.AdamW(actor.parameters(), lr=0.01)
    (loss_of(actor, batch(0)) + loss_of(critic, batch(0))).backward()
    optimizer.step()
    config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    context = FSDP.state_dict_type(actor, StateDictType.FULL_STATE_DICT, config)
    with context:
        saved = {"actor": actor.state_dict(), "critic": critic.state_dict()}
    with whole(actor):
        weights = actor.state_dict()
        moments = FSDP.optim_state_dict(actor, optimizer)
    with saving(critic):
        again = critic.state_dict()
    if dist.get_rank() == 0:
        torch.save(saved, out / "saved.pt")
        torch.save([weights, moments, again], out / "state.pt")
    return {"sizes": [len(weights), len(moments), len(again)]}
