import torch

from fsdp2_sharding import shard_model
from model import Model, batch, loss_of
from policies import get_policy


def main(out, policy):
    model = Model()
    model = shard_model(
        model,
        auto_wrap_policy=get_policy(policy),
        device_id=torch.device("cpu"),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"model": model, "losses": losses}
