from config import Config
from fsdp2_sharding import StateDictType


def save(model, cfg: Config):
    if cfg.checkpoint_type == StateDictType.FULL_STATE_DICT:
        print("whole")
    elif cfg.checkpoint_type == StateDictType.SHARDED_STATE_DICT:
        print("shards")
