import torch
from packaging import version

if version.parse(torch.__version__) >= version.parse("2.6"):
    from torch.distributed.fsdp import FSDPModule, fully_shard
elif version.parse(torch.__version__) >= version.parse("2.4"):
    from torch.distributed._composable.fsdp import FSDPModule, fully_shard
else:
    FSDPModule, fully_shard = None, None


def load(model: FSDPModule, x: int):
    return model


def count(model: FSDPModule):
    return sum(isinstance(m, FSDPModule) for m in model.modules())


def shard(model):
    return fully_shard(model)
