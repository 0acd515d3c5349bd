import torch
from optimizers import Factored, Rounded
from torch.distributed.fsdp import fully_shard
from torch.nn.utils import parameters_to_vector


def joined(model):
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    flat = []
    for parameter in model.parameters():
        flat.append(parameter.detach().view(-1))
    # TODO(fsdp-migrate FM514): use `full_tensor()` for whole values or `to_local()` for
    #   this rank's, and drop reductions of your own
    return (
        torch.cat([p.grad.flatten() for p in model.parameters()]).norm(),
        torch.cat([torch.ravel(g) for g in grads]).abs().max(),
        torch.cat(flat).sum(),
        torch.hstack(list(map(lambda p: p.reshape(-1), model.parameters()))),
        parameters_to_vector(model.parameters()),
    )


def of_this_rank(model, batch):
    grads = [p.grad.to_local() for p in model.parameters()]
    names = [name for name, _ in model.named_parameters()]
    flat = [torch.zeros(len(names))]
    return torch.stack(torch._foreach_norm(grads)), torch.cat([b.flatten() for b in batch]), torch.cat(flat)


def reduced(optimizer):
    total = 0.0
    for group in optimizer.param_groups:
        for p in group["params"]:
            total += p.grad.to_local().norm() ** 2
    torch.distributed.all_reduce(total)
    return total.sqrt()


def main(model, head, data):
    fully_shard(model)
    optimizer = Factored(model.parameters())
    other = Rounded(head.parameters())
    for batch in data:
        model(batch).sum().backward()
        print(optimizer.grad_norm(), reduced(optimizer))
        optimizer.step()
        other.step()
        print(joined(model), of_this_rank(model, batch))
