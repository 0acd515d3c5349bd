import torch
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
)
from torch.distributed.fsdp import fully_shard


class Worker:
    def __init__(self, model):
        self.model = fully_shard(model)

    def save(self, path):
        torch.save(
            get_model_state_dict(
                self.model, options=StateDictOptions(cpu_offload=True)
            ),
            path,
        )

    def load(self, path):
        set_model_state_dict(self.model, torch.load(path))
