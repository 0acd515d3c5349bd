import functools

import torch
from model import Model
from shapes import Block, batch, loss_of
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

shard = functools.partial(
    FSDP,
    auto_wrap_policy=functools.partial(
        transformer_auto_wrap_policy, transformer_layer_cls={Block}
    ),
    device_id=torch.device("cpu"),
    use_orig_params=True,
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
    optimizer = model.configure_optimizers(0.1, 0.01)
    model = shard(model)
    other = Model()
    second = torch.optim.SGD(other.groups(), lr=0.1)
    other = shard(other)
    losses = [trained(model, optimizer), trained(other, second)]
    return {"model": model, "other": other, "losses": losses}
