import os

import torch
from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp import StateDictType

from settings.sharding import C


def everything():
    return os.name, torch.float32, C, ShardingStrategy.FULL_SHARD, StateDictType.FULL_STATE_DICT
