# Copyright

from dataclasses import dataclass

from fsdp2_sharding import ShardingStrategy, StateDictType

@dataclass
class C:
    s: ShardingStrategy = ShardingStrategy.FULL_SHARD
    t: StateDictType = StateDictType.FULL_STATE_DICT
