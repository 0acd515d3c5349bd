import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def evaluate(model):
    with torch.no_grad():
        return model()


def kept(model):
    model()
    return dict(model.named_parameters())


def main(model, average):
    model = FSDP(model)
    evaluate(model)
    start = [p.detach().clone() for p in model.parameters()]
    kept_parameters = list(model.parameters())
    for parameter in model.parameters():
        parameter.data.mul_(0.5)
    model().backward()
    later = list(model.parameters())
    evaluate(model)
    sizes = [p.numel() for p in model.parameters()]
    return start, kept_parameters, later, sizes
