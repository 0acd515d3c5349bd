import functools

import torch
import torch.distributed.fsdp.wrap as policies
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import wrap as fsdp_wrap

from model import Block, Model, batch, loss_of


def shard(model, unit_size):
    if unit_size:
        policy = functools.partial(
            policies.size_based_auto_wrap_policy, min_num_params=unit_size
        )
    else:
        policy = functools.partial(
            fsdp_wrap.transformer_auto_wrap_policy, transformer_layer_cls={Block}
        )
    return FSDP(
        model,
        auto_wrap_policy=policy,
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )


def main(out, size):
    model = shard(Model(), size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(2):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"model": model, "losses": losses}
