import torch

from fsdp2_sharding import ModuleWrapPolicy, shard_model
from model import Block, Model, batch, loss_of


def main(out):
    torch.manual_seed(3)
    model = Model()
    model.head.requires_grad_(False)
    model = shard_model(
        model,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        device_id=torch.device("cpu"),
        ignored_states=[model.head],
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, foreach=False)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"model": model, "losses": losses}
