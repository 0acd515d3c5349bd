import torch
from torch.distributed.fsdp import fully_shard


def train(model, batches):
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False):
        for batch in batches:
            model(batch).mean().backward()
            optimizer.step()


def train_well(model, batches):
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in batches:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(batch).mean()
        loss.backward()
        optimizer.step()
