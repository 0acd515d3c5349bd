import functools

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType
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


def save(model, folder):
    dcp.save({"model": model.state_dict()}, checkpoint_id=folder)


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
    FSDP.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT)
    save(model, out / "checkpoint")
    return {"model": model, "losses": losses}
