import torch
from torch.distributed.fsdp import fully_shard


def build(model, state):
    # TODO(fsdp-migrate FM504): build the optimizer after the model is sharded, from the
    #   sharded model's parameters
    optimizer = torch.optim.AdamW(model.parameters())
    optimizer.load_state_dict(state)
    fully_shard(model)
    return model, optimizer
