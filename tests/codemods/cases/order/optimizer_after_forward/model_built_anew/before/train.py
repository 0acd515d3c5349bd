import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build():
    return FSDP(torch.nn.Linear(4, 4))


def first_and_second_run(batch):
    model = build()
    model(batch).sum().backward()
    model = build()
    return torch.optim.SGD(model.parameters(), lr=0.1)


def the_same_model(batch):
    model = build()
    model(batch).sum().backward()
    return torch.optim.SGD(model.parameters(), lr=0.1)
