import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def make_optimizer(model):
    return torch.optim.AdamW(model.parameters())


def build(model):
    optimizer = make_optimizer(model)
    model = FSDP(model, use_orig_params=True)
    return model, optimizer
