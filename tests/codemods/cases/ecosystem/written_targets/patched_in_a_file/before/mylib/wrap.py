from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy


def build():
    return FSDP(nn.Linear(4, 4))


def build2():
    return FullyShardedDataParallel(nn.Linear(4, 4), auto_wrap_policy=transformer_auto_wrap_policy)
