import torch
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import fully_shard


def save(model, path, sharded):
    fully_shard(model)
    torch.save(get_model_state_dict(model), path)
