import os

import torch

from fsdp2_sharding import ShardingStrategy, StateDictType
from settings.sharding import C


def everything():
    return os.name, torch.float32, C, ShardingStrategy.FULL_SHARD, StateDictType.FULL_STATE_DICT
