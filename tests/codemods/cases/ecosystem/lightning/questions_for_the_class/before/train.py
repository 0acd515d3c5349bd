import torch
from lightning.fabric import Fabric
from lightning.fabric.strategies import FSDPStrategy
from torch.distributed.fsdp import FullyShardedDataParallel


def main(model, build):
    fabric = Fabric(strategy=FSDPStrategy(auto_wrap_policy={torch.nn.Linear}))
    model = fabric.setup_module(model)
    inner = model._forward_module
    if inner.__class__.__name__ == "FullyShardedDataParallel":
        build(inner)
    return isinstance(inner, FullyShardedDataParallel)
