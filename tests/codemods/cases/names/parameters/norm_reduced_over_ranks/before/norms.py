import torch
import torch.distributed as dist


def in_a_loop(model):
    total = torch.zeros(())
    for parameter in model.parameters():
        if parameter.grad is not None:
            total += parameter.grad.detach().norm(2) ** 2
    dist.all_reduce(total, op=dist.ReduceOp.SUM)
    return total.sqrt()


def of_two_kinds(model):
    """Some parameters under one name, the others under another; norms are taken in full precision."""
    few = torch.zeros(())
    many = torch.zeros(())
    for name, p in model.named_parameters():
        if p.grad is None:
            continue
        if name.endswith("bias"):
            few += p.grad.norm(dtype=torch.float64) ** 2
        else:
            many += p.grad.norm(2, dtype=torch.float64) ** 2
    dist.all_reduce(few)
    dist.all_reduce(many)
    return (few.item() + many.item()) ** 0.5


def of_numbers(model):
    squares = 0.0
    for _, p in model.named_parameters():
        if p.grad is None:
            continue
        squares += torch.norm(p.grad.data.float(), 2).item() ** 2
    squares = torch.tensor(squares)
    dist.all_reduce(squares)
    return squares**0.5


def in_an_expression(model):
    grads = [p for p in model.parameters() if p.grad is not None]
    squares = sum(p.grad.float().pow(2).sum() for p in grads)
    dist.all_reduce(squares)
    return squares.sqrt()


def of_one_rank(model):
    """Printed by each rank for itself: the parts are others now."""
    squares = sum(p.grad.norm().item() ** 2 for p in model.parameters())
    return squares**0.5


def largest(model):
    norms = 0.0
    for p in model.parameters():
        norms += p.grad.abs().max()
    dist.all_reduce(norms, op=dist.ReduceOp.MAX)
    return norms


def averaged(model):
    squares = torch.zeros(())
    for p in model.parameters():
        squares += p.grad.norm() ** 2
    dist.all_reduce(squares, op=dist.ReduceOp.MAX)
    return squares


def used_before(model, log):
    squares = torch.zeros(())
    for p in model.parameters():
        squares += p.grad.norm() ** 2
    log(squares)
    dist.all_reduce(squares)
    return squares


def of_a_kind(model, kind=2.0):
    total = torch.zeros(())
    for parameter in model.parameters():
        if parameter.grad is not None:
            total += parameter.grad.detach().float().norm(kind) ** kind
    dist.all_reduce(total)
    return total ** (1.0 / kind)
