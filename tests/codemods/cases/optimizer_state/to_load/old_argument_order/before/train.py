import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def resume(model, optimizer, path):
    model = FSDP(model)
    saved = torch.load(path)
    state = FSDP.optim_state_dict_to_load(saved, model, optimizer)
    optimizer.load_state_dict(state)
