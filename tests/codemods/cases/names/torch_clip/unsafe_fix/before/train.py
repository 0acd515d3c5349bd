import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def train(model, batches, lr):
    model = FSDP(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    for batch in batches:
        model(batch).mean().backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        print(f"{norm:.3f}")
        optimizer.step()
        optimizer.zero_grad()
