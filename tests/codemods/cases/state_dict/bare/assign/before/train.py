import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def load(model, path):
    model = FSDP(model)
    model.load_state_dict(torch.load(path), assign=True)
    return model
