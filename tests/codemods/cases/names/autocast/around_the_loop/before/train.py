import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def train(model, batches):
    model = FSDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        for batch in batches:
            model(batch).mean().backward()
            optimizer.step()


def train_well(model, batches):
    model = FSDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in batches:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(batch).mean()
        loss.backward()
        optimizer.step()
