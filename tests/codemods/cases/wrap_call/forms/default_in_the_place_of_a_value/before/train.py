import json

import torch
from settings import sharding_settings
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from model import Model, batch, loss_of


def main(out):
    settings = sharding_settings("FULL_SHARD")
    settings["use_orig_params"] = True
    settings["auto_wrap_policy"] = None
    model = FSDP(Model(), **settings)
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
    return FSDP(model, **settings)
