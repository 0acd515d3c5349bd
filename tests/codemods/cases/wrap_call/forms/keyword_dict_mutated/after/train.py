import torch
from settings import sharding_settings

from fsdp2_sharding import shard_model
from model import Model, batch, loss_of


def main(out, strategy):
    settings, layers = sharding_settings(strategy)
    settings["auto_wrap_policy"] = settings["auto_wrap_policy"](layers)
    model = shard_model(model=Model(), **settings)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"model": model, "losses": losses}
