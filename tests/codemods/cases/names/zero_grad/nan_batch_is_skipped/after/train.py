import torch
from torch.distributed.fsdp import fully_shard


def run(model, batches, accumulate, optimizer):
    fully_shard(model)
    for i, batch in enumerate(batches):
        is_last = (i + 1) % accumulate == 0
        model.set_requires_gradient_sync(is_last)
        loss = model(batch).mean()
        if torch.isnan(loss):
            # TODO(fsdp-migrate FM304): synchronise first: switch synchronisation
            #   on, run `(loss * 0).backward()`, then `zero_grad()`
            optimizer.zero_grad()
            continue
        loss.backward()
        if is_last:
            optimizer.step()
            optimizer.zero_grad()
