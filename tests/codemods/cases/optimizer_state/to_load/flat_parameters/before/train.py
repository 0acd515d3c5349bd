import functools

import torch
import torch.distributed as dist
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    StateDictType,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

from model import Block, Model, batch, loss_of


def shard(model):
    return FSDP(
        model,
        auto_wrap_policy=functools.partial(
            transformer_auto_wrap_policy, transformer_layer_cls={Block}
        ),
        device_id=torch.device("cpu"),
    )


def main(out):
    model = shard(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(2):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    full = FullOptimStateDictConfig(offload_to_cpu=False)
    with FSDP.state_dict_type(
        model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(), full
    ):
        state = {
            "model": model.state_dict(),
            "optim": FSDP.optim_state_dict(model, optimizer),
        }
    if dist.get_rank() == 0:
        torch.save(state, out / "checkpoint.pt")
    dist.barrier()
    again = shard(Model())
    # The settings come with the state.
    optimizer = torch.optim.AdamW(again.parameters(), lr=0.1, eps=0)
    saved = torch.load(out / "checkpoint.pt")
    with FSDP.state_dict_type(
        again, StateDictType.FULL_STATE_DICT, FullStateDictConfig(), full
    ):
        again.load_state_dict(saved["model"])
        optimizer.load_state_dict(
            FSDP.optim_state_dict_to_load(again, optimizer, saved["optim"])
        )
    for step in range(2, 5):
        optimizer.zero_grad()
        loss = loss_of(again, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"model": again, "losses": losses}
