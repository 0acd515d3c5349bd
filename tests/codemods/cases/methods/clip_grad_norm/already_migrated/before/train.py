import torch
from torch.distributed.fsdp import fully_shard


def train(model, batches, lr):
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    for batch in batches:
        model(batch).mean().backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()
        print(f"norm {norm:.3f}")
        optimizer.step()
        optimizer.zero_grad()
