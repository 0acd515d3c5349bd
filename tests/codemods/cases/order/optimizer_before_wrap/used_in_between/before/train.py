import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(model, state):
    optimizer = torch.optim.AdamW(model.parameters())
    optimizer.load_state_dict(state)
    model = FSDP(model, use_orig_params=True)
    return model, optimizer
