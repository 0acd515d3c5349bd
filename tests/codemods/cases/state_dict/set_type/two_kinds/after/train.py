import torch
from torch.distributed.fsdp import fully_shard

from fsdp2_sharding import StateDictType, model_state_dict, set_state_dict_type


class Worker:
    def __init__(self, model):
        self.model = fully_shard(model)

    def use_shards(self):
        set_state_dict_type(self.model, StateDictType.SHARDED_STATE_DICT)

    def use_whole(self):
        set_state_dict_type(self.model, StateDictType.FULL_STATE_DICT)

    def save(self, path):
        torch.save(model_state_dict(self.model), path)
