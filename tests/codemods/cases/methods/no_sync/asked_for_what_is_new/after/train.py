import torch
from torch.distributed.fsdp import fully_shard


def train(model, batches, accumulate):
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for step, batch in enumerate(batches):
        is_last = (step + 1) % accumulate == 0
        if hasattr(model, "set_requires_gradient_sync"):
            model.set_requires_gradient_sync(is_last)
        model(batch).sum().backward()
        if is_last:
            optimizer.step()
            optimizer.zero_grad()
