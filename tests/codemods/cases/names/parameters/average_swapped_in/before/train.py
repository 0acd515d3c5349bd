import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from average import Average


@torch.no_grad()
def evaluate(model, batch):
    return model(batch)


def train(net, batches):
    model = FSDP(net, use_orig_params=True)
    optimizer = torch.optim.AdamW(model.parameters())
    average = Average(model, 0.99)
    for batch in batches:
        model(batch).sum().backward()
        optimizer.step()
        average.update()
        raw = evaluate(model, batch)
        with average.swapped():
            print(raw, evaluate(model, batch))
