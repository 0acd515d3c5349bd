import torch
from torch.distributed.fsdp import FullyShardedDataParallel

from model import Model, batch, loss_of


def main(out):
    model = FullyShardedDataParallel(
        Model(), device_id=torch.device("cpu"), use_orig_params=True
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
