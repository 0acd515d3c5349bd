import functools

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import (
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    StateDictType,
)
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

from model import Block, Model, batch, loss_of


def shard(model):
    return FSDP(
        model,
        auto_wrap_policy=functools.partial(
            transformer_auto_wrap_policy, transformer_layer_cls={Block}
        ),
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )


def schedule(optimizer, done=0):
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1 / (1 + n + done))


def train(model, optimizer, scheduler, steps):
    losses = []
    for step in steps:
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    return losses


def save(model, optimizer, folder):
    with FSDP.state_dict_type(
        model,
        StateDictType.SHARDED_STATE_DICT,
        ShardedStateDictConfig(),
        ShardedOptimStateDictConfig(offload_to_cpu=False),
    ):
        state = {
            "model": model.state_dict(),
            "optim": FSDP.optim_state_dict(model, optimizer),
        }
        dcp.save(state, checkpoint_id=folder)


def load(model, optimizer, folder):
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        state = {"model": model.state_dict()}
        dcp.load(state, checkpoint_id=folder)
        model.load_state_dict(state["model"])
        loaded = load_sharded_optimizer_state_dict(
            model_state_dict=state["model"],
            optimizer_key="optim",
            storage_reader=FileSystemReader(folder),
        )
        flattened = FSDP.optim_state_dict_to_load(model, optimizer, loaded["optim"])
        optimizer.load_state_dict(flattened)


def main(out):
    model = shard(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = train(model, optimizer, schedule(optimizer), range(2))
    save(model, optimizer, out / "checkpoint")
    again = shard(Model())
    optimizer = torch.optim.AdamW(again.parameters(), lr=0.01)
    load(again, optimizer, out / "checkpoint")
    losses += train(again, optimizer, schedule(optimizer, done=2), range(2, 5))
    rates = [group["initial_lr"] for group in optimizer.param_groups]
    return {"model": again, "losses": losses + rates}
