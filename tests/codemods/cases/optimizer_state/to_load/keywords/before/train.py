import functools

import torch
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
        use_orig_params=True,
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
    again = shard(Model())
    fresh = torch.optim.AdamW(again.parameters(), lr=0.01)
    for wrapped in (model, again):
        FSDP.set_state_dict_type(
            wrapped,
            StateDictType.FULL_STATE_DICT,
            FullStateDictConfig(),
            FullOptimStateDictConfig(offload_to_cpu=False),
        )
    moments = FSDP.optim_state_dict(model, optimizer)
    again.load_state_dict(model.state_dict())
    moments = FSDP.optim_state_dict_to_load(
        optim_state_dict=moments, model=again, optim=fresh
    )
    fresh.load_state_dict(moments)
    loss = loss_of(again, batch(3))
    loss.backward()
    fresh.step()
    return {"model": again, "losses": losses}
