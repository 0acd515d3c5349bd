import torch

from config import Config
from fsdp2_sharding import ShardingStrategy
from model import Model, batch, loss_of
from wrap import wrap_model


def main(out, strategy, policy, bf16):
    cfg = Config(strategy=ShardingStrategy[strategy], policy=policy, bf16=bf16)
    model = wrap_model(Model(), cfg)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"model": model, "losses": losses}
