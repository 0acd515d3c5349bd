import torch
from torch.distributed.fsdp import fully_shard


def train(model, batches, lr):
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    for batch in batches:
        model(batch).mean().backward()
        # TODO(fsdp-migrate FM302): expect other numbers than before (these are right)
        #   and add `.full_tensor()` to the norm
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        print(norm.item())
        optimizer.step()
        optimizer.zero_grad()
