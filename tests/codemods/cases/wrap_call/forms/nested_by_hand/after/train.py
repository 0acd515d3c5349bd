import torch

from fsdp2_sharding import MixedPrecision, shard_model
from model import Model, batch, loss_of


def main(out, dtype):
    precision = MixedPrecision(param_dtype=getattr(torch, dtype))
    model = Model()
    for i in range(len(model.blocks)):
        model.blocks[i] = shard_model(
            model.blocks[i],
            mixed_precision=precision,
            device_id=torch.device("cpu"),
            is_root=False,
        )
    model = shard_model(
        model,
        mixed_precision=precision,
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
