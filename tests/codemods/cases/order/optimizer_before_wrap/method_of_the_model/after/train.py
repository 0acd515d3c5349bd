import functools

import torch
from fsdp2_sharding import shard_model, transformer_auto_wrap_policy
from model import Model
from shapes import Block, batch, loss_of

shard = functools.partial(
    shard_model,
    auto_wrap_policy=functools.partial(
        transformer_auto_wrap_policy, transformer_layer_cls={Block}
    ),
    device_id=torch.device("cpu"),
)


def trained(model, optimizer):
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main(out):
    model = Model()
    model = shard(model)
    optimizer = model.configure_optimizers(0.1, 0.01)
    other = Model()
    other = shard(other)
    second = torch.optim.SGD(other.groups(), lr=0.1)
    losses = [trained(model, optimizer), trained(other, second)]
    return {"model": model, "other": other, "losses": losses}
