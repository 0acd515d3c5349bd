import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def by_shape(model):
    return [
        {"params": [p for n, p in model.named_parameters() if p.dim() > 1]},
        {"params": [p for n, p in model.named_parameters() if p.dim() <= 1]},
    ]


def by_name(model):
    decayed, others = [], []
    for name, parameter in model.named_parameters():
        if name.endswith(".bias"):
            others.append(parameter)
        else:
            decayed.append(parameter)
    return decayed, others


def main(model):
    model = FSDP(model)
    return torch.optim.AdamW(by_shape(model)), by_name(model)
