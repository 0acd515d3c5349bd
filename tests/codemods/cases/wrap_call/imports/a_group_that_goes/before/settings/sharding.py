# Copyright

from dataclasses import dataclass

from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp.fully_sharded_data_parallel import StateDictType

@dataclass
class C:
    s: ShardingStrategy = ShardingStrategy.FULL_SHARD
    t: StateDictType = StateDictType.FULL_STATE_DICT
