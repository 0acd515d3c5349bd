from dataclasses import dataclass

from torch.distributed.fsdp import StateDictType


@dataclass
class Config:
    checkpoint_type: StateDictType = StateDictType.SHARDED_STATE_DICT
