import copy

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def update(average, model, beta):
    for kept, new in zip(average.parameters(), model.parameters()):
        kept.data.mul_(beta).add_(new.data, alpha=1 - beta)


def start(average, model):
    for kept, new in zip(average.parameters(), model.parameters()):
        kept.data.copy_(new.data)


def resharded(average):
    for unit in FSDP.fsdp_modules(average):
        torch.distributed.fsdp._runtime_utils._reshard(unit, unit._handle, True)


def update_resharded(average, model, beta):
    resharded(average)
    for kept, new in zip(average.parameters(), model.parameters()):
        kept.data.mul_(beta).add_(new.data, alpha=1 - beta)


@torch.no_grad()
def sample(average, batch):
    return average(batch)


def train(net, batches):
    average = FSDP(copy.deepcopy(net), use_orig_params=True)
    model = FSDP(net, use_orig_params=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    start(average, model)
    for batch in batches:
        loss = model(batch).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        update(average, model, 0.9)
        update_resharded(average, model, 0.9)
        sample(average, batch)
    return average


def train_and_evaluate(net, batches):
    model = FSDP(net, use_orig_params=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in batches:
        before = [p.detach().clone() for p in model.parameters()]
        loss = model(batch).mean()
        loss.backward()
        optimizer.step()
        for p in model.parameters():
            p.data.clamp_(-1, 1)
        with torch.no_grad():
            print(model(batch), before)
    return model
