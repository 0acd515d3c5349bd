import torch

from fsdp2_sharding import ModuleWrapPolicy, ShardingStrategy, shard_model
from model import Block, Model, batch, loss_of


def main(out, name):
    torch.cpu.device_count = lambda: 2  # two nodes of two devices
    model = shard_model(
        Model(),
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        sharding_strategy=ShardingStrategy[name],
        device_id=torch.device("cpu"),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(2):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"model": model, "losses": losses}
