import functools

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

from model import Block, Model, batch, loss_of


def build():
    model = FSDP(
        Model(),
        auto_wrap_policy=functools.partial(
            transformer_auto_wrap_policy, transformer_layer_cls={Block}
        ),
        device_id=torch.device("cpu"),
    )
    groups = [{"params": [], "weight_decay": 0.0}, {"params": list(model.parameters())}]
    return model, torch.optim.AdamW(groups, lr=0.01)


def train(model, optimizer, first, last):
    losses = []
    for step in range(first, last):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
