import torch
from torch.distributed.fsdp import fully_shard


def build(model):
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    return model, optimizer


def sharded(model):
    return fully_shard(model)


def optimizer_for(model):
    return torch.optim.AdamW(model.parameters())


class Trainer:
    def fresh_or_resumed(self, model, state):
        if state is None:
            self.model = sharded(model)
            self.optimizer = optimizer_for(self.model)
        else:
            model.load_state_dict(state)
            self.model = sharded(model)
            self.optimizer = optimizer_for(self.model)


def in_one_branch(model, use_fsdp):
    if not use_fsdp:
        optimizer = torch.optim.AdamW(model.parameters())
    else:
        fully_shard(model)
        optimizer = torch.optim.AdamW(model.parameters())
    return model, optimizer
