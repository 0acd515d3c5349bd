import json

import torch
from settings import sharding_settings

from fsdp2_sharding import shard_model
from model import Model, batch, loss_of


def main(out):
    settings = sharding_settings("FULL_SHARD")
    settings["auto_wrap_policy"] = None
    model = shard_model(Model(), **settings)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"model": model, "losses": losses}


def from_a_file(path, model):
    settings = json.load(open(path))
    settings["use_orig_params"] = True
    settings["auto_wrap_policy"] = None
    return shard_model(model, **settings)
