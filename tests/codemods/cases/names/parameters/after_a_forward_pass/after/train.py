import torch
from torch.distributed.fsdp import fully_shard


def evaluate(model):
    with torch.no_grad():
        return model()


def kept(model):
    model()
    return dict(model.named_parameters())


def main(model, average):
    fully_shard(model)
    evaluate(model)
    # TODO(fsdp-migrate FM520): reshard first: `for module in model.modules(): if
    #   isinstance(module, FSDPModule): module.reshard()`
    start = [p.detach().clone() for p in model.parameters()]
    # TODO(fsdp-migrate FM520): reshard first: `for module in model.modules(): if
    #   isinstance(module, FSDPModule): module.reshard()`
    kept_parameters = list(model.parameters())
    # TODO(fsdp-migrate FM520): reshard first: `for module in model.modules(): if
    #   isinstance(module, FSDPModule): module.reshard()`
    for parameter in model.parameters():
        parameter.data.mul_(0.5)
    model().backward()
    later = list(model.parameters())
    evaluate(model)
    sizes = [p.numel() for p in model.parameters()]
    return start, kept_parameters, later, sizes
