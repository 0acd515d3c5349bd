from torch import nn
from torch.distributed.fsdp import fully_shard

from mylib.fsdp2_sharding import shard_model, transformer_auto_wrap_policy


def build():
    model = nn.Linear(4, 4)
    return fully_shard(model)


def build2():
    return shard_model(nn.Linear(4, 4), auto_wrap_policy=transformer_auto_wrap_policy)
