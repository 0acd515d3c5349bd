import torch

from fsdp2_sharding import MixedPrecision, shard_model
from model import Model, batch, loss_of


def main(out):
    model = Model()
    settings = {
        "mixed_precision": MixedPrecision(param_dtype=torch.bfloat16),
        "device_id": torch.device("cpu"),
    }
    for i, block in enumerate(model.blocks):
        # each block on its own
        model.blocks[i] = shard_model(block, **settings, is_root=False)

    # and the rest
    model = shard_model(model, **settings)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"model": model, "losses": losses}
