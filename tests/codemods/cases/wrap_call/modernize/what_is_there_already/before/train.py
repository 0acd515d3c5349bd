import re

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from model import Block

LAYER = re.compile(r"layers\.\d+")


def sharded(model):
    model.gradient_checkpointing_enable()
    model.head = FSDP(model.head)
    model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}))
    return model
