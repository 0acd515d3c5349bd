import functools

import torch
import torch.distributed as dist

from fsdp2_sharding import shard_model, transformer_auto_wrap_policy
from model import Block, Model, batch, loss_of


def main(out):
    torch.manual_seed(dist.get_rank())
    model = shard_model(
        Model(),
        auto_wrap_policy=functools.partial(
            transformer_auto_wrap_policy, transformer_layer_cls={Block}
        ),
        device_id=torch.device("cpu"),
        sync_module_states=True,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"model": model, "losses": losses}
