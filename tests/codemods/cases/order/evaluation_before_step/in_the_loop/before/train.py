import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


@torch.no_grad()
def evaluate(model, batch):
    return model(batch)


def log(model, batch):
    return model(batch)


def main(model, batches):
    model = FSDP(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in batches:
        evaluate(model, batch)
        model(batch).backward()
        evaluate(model, batch)
        optimizer.step()
    for batch in batches:
        model(batch).backward()
        optimizer.step()
        with torch.no_grad():
            log(model, batch)
