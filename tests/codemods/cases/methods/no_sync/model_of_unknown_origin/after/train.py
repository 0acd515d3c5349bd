import torch
from torch.distributed.fsdp import fully_shard


def shard(model):
    return fully_shard(model)


def accumulate(net, batches):
    # TODO(fsdp-migrate FM303): if this is the sharded model:
    #   `set_requires_gradient_sync(...)` for each micro-batch
    with net.no_sync():
        for batch in batches[:-1]:
            net(batch).sum().backward()
    net(batches[-1]).sum().backward()


def by_a_library(accelerator, net, batch):
    with accelerator.no_sync(net):
        net(batch).sum().backward()


class Engine:
    def no_sync(self):
        return torch.enable_grad()

    def step(self, batch):
        with self.no_sync():
            return batch
