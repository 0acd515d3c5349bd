import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType


class Worker:
    def __init__(self, model):
        self.model = FSDP(model)

    def use_shards(self):
        FSDP.set_state_dict_type(self.model, StateDictType.SHARDED_STATE_DICT)

    def use_whole(self):
        FSDP.set_state_dict_type(self.model, StateDictType.FULL_STATE_DICT)

    def save(self, path):
        torch.save(self.model.state_dict(), path)
