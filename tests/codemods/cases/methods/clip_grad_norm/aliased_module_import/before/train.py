import torch
import torch.distributed.fsdp as fsdp


def train(model, batches, lr):
    model = fsdp.FullyShardedDataParallel(module=model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    for batch in batches:
        model(batch).mean().backward()
        total = model.clip_grad_norm_(1.0, 2.0)  # the usual threshold
        print("norm %.3f" % total)
        optimizer.step()
        optimizer.zero_grad()
