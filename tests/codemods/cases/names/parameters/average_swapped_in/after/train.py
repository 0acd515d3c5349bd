import torch
from torch.distributed.fsdp import fully_shard

from average import Average


@torch.no_grad()
def evaluate(model, batch):
    return model(batch)


def train(net, batches):
    model = fully_shard(net)
    optimizer = torch.optim.AdamW(model.parameters())
    average = Average(model, 0.99)
    for batch in batches:
        model(batch).sum().backward()
        optimizer.step()
        average.update()
        raw = evaluate(model, batch)
        with average.swapped():
            print(raw, evaluate(model, batch))
