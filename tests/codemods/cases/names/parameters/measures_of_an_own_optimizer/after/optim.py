import torch
import torch.distributed as dist


class Optimizer(torch.optim.Optimizer):
    """Measures gradients and state, and clips."""

    @torch.no_grad()
    def clip(self, max_norm):
        norms = []
        for group in self.param_groups:
            for name, p in zip(group["param_names"], group["params"]):
                tensors = [p.grad]
                tensors.extend(self.state[p].values())
                for x, prefix in zip(tensors, ("grad", "state")):
                    if x is not None:
                        # TODO(fsdp-migrate FM514): use `full_tensor()` for whole values
                        #   or `to_local()` for this rank's, and drop reductions of your
                        #   own
                        norms.append(torch.linalg.vector_norm(x, 2.0).unsqueeze(0))
        total = torch.cat(norms) ** 2.0
        dist.all_reduce(total)
        return total.sum() ** 0.5


class Signed(Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr, "beta": 0.9})

    @torch.no_grad()
    def step(self, closure=None):
        self.dots = []
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["step"] = torch.tensor(0.0)
                    state["average"] = torch.zeros_like(p)
                step = state["step"]
                step += 1
                average = state["average"]
                average.lerp_(p.grad, 1 - group["beta"])
                update = torch.sign(average) / (1 - group["beta"] ** step.item())
                p.add_(update, alpha=-group["lr"])
                # TODO(fsdp-migrate FM514): use `full_tensor()` for whole values or
                #   `to_local()` for this rank's, and drop reductions of your own
                self.dots.append(torch.tensordot(update, average, dims=update.dim()))
