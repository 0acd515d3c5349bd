from functools import partial

import torch

from fsdp import shard_model, wrap_by_protocol
from model import Model, batch, loss_of


class Pipeline:
    def __init__(self, shard_fn):
        self.model = shard_fn(Model())


def main(out):
    torch.manual_seed(3)
    shard_fn = partial(shard_model, device_id=torch.device("cpu"))
    models = [Pipeline(shard_fn=shard_fn).model, wrap_by_protocol(Model())]
    losses = []
    for model in models:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(2):
            optimizer.zero_grad()
            loss = loss_of(model, batch(step))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return {"losses": losses, "by_protocol": models[1]}
