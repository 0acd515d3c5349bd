from dataclasses import dataclass

from fsdp2_sharding import StateDictType


@dataclass
class Config:
    checkpoint_type: StateDictType = StateDictType.SHARDED_STATE_DICT
