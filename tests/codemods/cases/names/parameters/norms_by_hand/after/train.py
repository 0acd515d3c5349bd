import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


def summed(model):
    total = torch.zeros(())
    for parameter in model.parameters():
        if parameter.grad is not None:
            total += parameter.grad.to_local().norm(2) ** 2
    dist.all_reduce(total)
    return total.sqrt().item()


def stacked(model):
    # TODO(fsdp-migrate FM514): use `full_tensor()` for whole values or `to_local()` for
    #   this rank's, and drop reductions of your own
    norms = [torch.linalg.vector_norm(p.grad) for p in model.parameters()]
    total = torch.stack(norms).square().sum()
    dist.all_reduce(total, op=dist.ReduceOp.SUM)
    return total**0.5


def metrics(model):
    found = {}
    for name, parameter in model.named_parameters():
        flat = parameter.grad.view(-1)
        # TODO(fsdp-migrate FM514): use `full_tensor()` for whole values or `to_local()`
        #   for this rank's, and drop reductions of your own
        found[name] = torch.stack([flat.min(), flat.max()])
        dist.reduce(found[name], dst=0)
    return found


def of_gradients(model):
    for parameter in model.parameters():
        # TODO(fsdp-migrate FM514): use `full_tensor()` for whole values or `to_local()`
        #   for this rank's, and drop reductions of your own
        dist.all_reduce(parameter.grad)
    # TODO(fsdp-migrate FM514): use `full_tensor()` for whole values or `to_local()` for
    #   this rank's, and drop reductions of your own
    return any(torch.isnan(p.grad).any() for p in model.parameters())


def of_groups(optimizer):
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            # TODO(fsdp-migrate FM514): use `full_tensor()` for whole values or
            #   `to_local()` for this rank's, and drop reductions of your own
            print(parameter.grad.norm().item())


def of_one(model):
    # TODO(fsdp-migrate FM523): use `full_tensor()` for whole values or `to_local()` for
    #   this rank's
    return model.head.weight.norm().item(), model.head.weight.grad.mean()


def of_handles(model):
    # TODO(fsdp-migrate FM507): there is no flat parameter: each DTensor has its own
    #   name and whole shape, `.to_local()` is this rank's part
    return sum(handle.flat_param.grad.norm() ** 2 for handle in model._all_handles)


def main(model):
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    model().backward()
    of_groups(optimizer)
    return (
        summed(model),
        stacked(model),
        metrics(model),
        of_gradients(model),
        (
            of_one(model),
            of_handles(model),
        ),
    )
