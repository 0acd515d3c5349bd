from functools import partial

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from model import Model, batch, loss_of


class Sharding:
    def __init__(self):
        self.shard = partial(FSDP, device_id=torch.device("cpu"))

    def prepare(self, model):
        return self.shard(model, use_orig_params=True)


def main(out, bad):
    """A step whose gradients are not finite is skipped, with all its micro-batches."""
    model = Sharding().prepare(Model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses, skipped = [], 0
    for step in range(6):
        loss = loss_of(model, batch(step))
        if step == bad:
            loss = loss * float("inf")
        if step % 2 == 0:
            with model.no_sync():
                loss_of(model, batch(step)).backward()
        else:
            loss.backward()
            norm = model.clip_grad_norm_(1e6)
            if not torch.isfinite(norm):
                optimizer.zero_grad()
                skipped += 1
                continue
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    return {"losses": losses, "skipped": skipped, "model": model}
