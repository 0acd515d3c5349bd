import torch
from torch.distributed.fsdp import FSDPModule, fully_shard


def build():
    model = torch.nn.Linear(4, 4)
    return fully_shard(model)


def first_and_second_run(batch):
    model = build()
    model(batch).sum().backward()
    model = build()
    return torch.optim.SGD(model.parameters(), lr=0.1)


def the_same_model(batch):
    model = build()
    model(batch).sum().backward()
    # After a forward pass the root shows temporary parameters.
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
    return torch.optim.SGD(model.parameters(), lr=0.1)
