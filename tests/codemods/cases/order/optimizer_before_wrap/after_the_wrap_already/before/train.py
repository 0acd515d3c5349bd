import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(model):
    model = FSDP(model, use_orig_params=True)
    optimizer = torch.optim.AdamW(model.parameters())
    return model, optimizer
