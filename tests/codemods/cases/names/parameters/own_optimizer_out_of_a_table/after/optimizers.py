import torch
from torch.optim import SGD, Optimizer


class Factored(Optimizer):
    """Rows and columns of matrices have one scale each."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                # TODO(fsdp-migrate FM514): use `full_tensor()` for whole values or
                #   `to_local()` for this rank's, and drop reductions of your own
                # TODO(fsdp-migrate FM509): check which parameters this rule is meant to
                #   match: it matched by flattened shapes before
                scale = p.grad.square().mean(-1, keepdim=True) if p.dim() >= 2 else 1.0
                p.sub_(p.grad / scale, alpha=group["lr"])


KINDS = {"factored": Factored, "sgd": SGD}


def build(name, parameters, lr):
    return KINDS[name](parameters, lr)


def of_model(name, model):
    kind = {"factored": Factored}[name]
    return kind(model.parameters(), lr=0.1)
