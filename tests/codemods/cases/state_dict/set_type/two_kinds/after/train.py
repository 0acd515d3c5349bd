import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import StateDictType, fully_shard


class Worker:
    def __init__(self, model):
        self.model = fully_shard(model)

    def use_shards(self):
        # TODO(fsdp-migrate FM406): delete the call and say at each state dict call what
        #   kind it gives (`StateDictOptions`)
        FSDP.set_state_dict_type(self.model, StateDictType.SHARDED_STATE_DICT)

    def use_whole(self):
        # TODO(fsdp-migrate FM406): delete the call and say at each state dict call what
        #   kind it gives (`StateDictOptions`)
        FSDP.set_state_dict_type(self.model, StateDictType.FULL_STATE_DICT)

    def save(self, path):
        # TODO(fsdp-migrate FM402): use `get_model_state_dict(model,
        #   options=StateDictOptions(full_state_dict=True))` for whole tensors or
        #   `get_model_state_dict(model)` for shards, from
        #   `torch.distributed.checkpoint.state_dict`
        torch.save(self.model.state_dict(), path)
