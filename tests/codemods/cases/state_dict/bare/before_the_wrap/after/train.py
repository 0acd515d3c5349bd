import torch
from torch.distributed.fsdp import fully_shard


def build(model, path):
    model.load_state_dict(torch.load(path))
    start = model.state_dict()
    fully_shard(model)
    return model, start
