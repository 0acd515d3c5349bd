import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def shard(model):
    return FSDP(model)


def accumulate(net, batches):
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
