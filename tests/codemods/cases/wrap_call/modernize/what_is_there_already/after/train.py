import re

import torch

from model import Block
from torch.distributed.fsdp import fully_shard

from fsdp2_sharding import compile_units

LAYER = re.compile(r"layers\.\d+")


def sharded(model):
    model.gradient_checkpointing_enable()
    fully_shard(model.head)
    for module in reversed(list(model.modules())):  # children before parents
        if isinstance(module, Block):
            fully_shard(module)
    fully_shard(model)
    compile_units(model)
    return model
