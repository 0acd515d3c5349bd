import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(model, path):
    model.load_state_dict(torch.load(path))
    start = model.state_dict()
    model = FSDP(model)
    return model, start
