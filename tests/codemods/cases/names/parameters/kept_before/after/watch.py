import torch
import torch.distributed as dist


class Norms:
    def __init__(self, params):
        self.params = [p for p in params if p.requires_grad]

    def read(self):
        # TODO(fsdp-migrate FM514): use `full_tensor()` for whole values or `to_local()`
        #   for this rank's, and drop reductions of your own
        return max(p.grad.norm().item() for p in self.params)


class Average:
    def __init__(self, model):
        self.shadow = {}
        for name, p in model.named_parameters():
            self.shadow[name] = p.detach().clone()

    def update(self, model):
        for kept in self.shadow.values():
            # TODO(fsdp-migrate FM514): use `full_tensor()` for whole values or
            #   `to_local()` for this rank's, and drop reductions of your own
            kept.copy_(torch.ones(4))
        # TODO(fsdp-migrate FM514): use `full_tensor()` for whole values or `to_local()`
        #   for this rank's, and drop reductions of your own
        dist.all_reduce(self.shadow["weight"])
        return len(self.shadow)


class Plain:
    def __init__(self, model):
        self.params = list(model.parameters())
        self.counts = [p.numel() for p in self.params]

    def read(self):
        dist.all_reduce(torch.tensor(self.counts))
        return max(p.grad.norm().item() for p in self.params)


def sizes(named_params):
    return {name: p.numel() for name, p in named_params.items()}


def send_all(tensors, target):
    waiting = []
    for name in sorted(tensors):
        shard = tensors[name]
        # TODO(fsdp-migrate FM514): use `full_tensor()` for whole values or `to_local()`
        #   for this rank's, and drop reductions of your own
        waiting.append(dist.isend(shard, target))
    return waiting
