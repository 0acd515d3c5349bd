import torch

from fsdp2_sharding import shard_model


class Adapter(torch.nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x)


def build(inner):
    adapter = Adapter(inner)
    width = adapter.module.width
    return shard_model(adapter), width
