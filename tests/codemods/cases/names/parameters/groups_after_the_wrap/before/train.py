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


def is_matrix(parameter, *, at_least=2):
    return parameter.ndim >= at_least


def by_function(model):
    matrices = [p for p in model.parameters() if is_matrix(p)]
    for parameter in model.parameters():
        print("parameter", parameter.shape)
        assert parameter.grad is None or parameter.grad.shape == parameter.shape
    return torch.optim.SGD(matrices)


def main(model):
    model = FSDP(model)
    return torch.optim.AdamW(by_shape(model)), by_name(model), by_function(model)
