import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    set_model_state_dict,
)
from torch.distributed.fsdp import fully_shard


class Adapted(nn.Module):
    def __init__(self, path=None):
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.adapter = nn.Linear(4, 4)
        if path is not None:
            self.load_state_dict(torch.load(path))

    def load_state_dict(self, state):
        own = {name: value for name, value in state.items() if "adapter" in name}
        super().load_state_dict({**self.state_dict(), **own})


class Pair(nn.Module):
    def __init__(self, path):
        super().__init__()
        self.student = nn.Linear(4, 4)
        self.teacher = nn.Linear(4, 4)
        if path is not None:
            self.load_state_dict(torch.load(path))
        fully_shard(self.student)
        fully_shard(self.teacher)


def adapted(path):
    model = Adapted(path)
    fully_shard(model)
    # TODO(fsdp-migrate FM403): use `set_model_state_dict(model, state,
    #   options=StateDictOptions(full_state_dict=True))` for whole tensors or
    #   `set_model_state_dict(model, state)` for shards, from
    #   `torch.distributed.checkpoint.state_dict`
    model.load_state_dict(torch.load(path))
    return model


def pair(path):
    model = Pair(path)
    set_model_state_dict(
        model, torch.load(path), options=StateDictOptions(full_state_dict=True)
    )
    return model
