import torch
from torch.optim import Optimizer


class Trust(Optimizer):
    """Each parameter's step is as long as the parameter."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr})

    def grad_norm(self):
        grads = [p.grad for group in self.param_groups for p in group["params"]]
        return torch.stack(torch._foreach_norm(grads)).norm()

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                ratio = torch.norm(p) / torch.norm(p.grad)
                p.copy_(p - p.grad * ratio * group["lr"])


class Factored(Trust):
    @torch.no_grad()
    def step(self):
        for index, group in enumerate(self.param_groups):
            for p in group["params"]:
                grad = p.grad
                if len(grad.shape) >= 2:
                    p.sub_(grad * self.rows[index], alpha=group["lr"])


class Rounded(Optimizer):
    """Used for models that are not sharded."""

    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                print(p.grad.norm())
