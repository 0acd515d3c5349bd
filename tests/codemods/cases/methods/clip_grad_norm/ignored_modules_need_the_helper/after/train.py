import torch

from fsdp2_sharding import clip_grad_norm_, shard_model


def train(model, batches, lr):
    model = shard_model(model, ignored_modules=[model.embed])
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, foreach=False)
    for batch in batches:
        model(batch).mean().backward()
        norm = clip_grad_norm_(model.parameters(), 1.0)
        print(f"norm {norm:.3f}")
        optimizer.step()
        optimizer.zero_grad()
