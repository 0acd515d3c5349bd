from torch.distributed.fsdp import StateDictType

from config import Config


def save(model, cfg: Config):
    if cfg.checkpoint_type == StateDictType.FULL_STATE_DICT:
        print("whole")
    elif cfg.checkpoint_type == StateDictType.SHARDED_STATE_DICT:
        print("shards")
