import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def train(model, batches, lr):
    model = FSDP(model, ignored_modules=[model.embed])
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    for batch in batches:
        model(batch).mean().backward()
        norm = model.clip_grad_norm_(1.0)
        print(f"norm {norm:.3f}")
        optimizer.step()
        optimizer.zero_grad()
