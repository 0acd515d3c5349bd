import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Adapter(torch.nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x)


def build(inner):
    adapter = Adapter(inner)
    width = adapter.module.width
    return FSDP(adapter), width
