from contextlib import contextmanager

import torch


class Average:
    def __init__(self, model, decay):
        self.model = model
        self.decay = decay
        self.shadow = {name: p.detach().clone() for name, p in model.named_parameters()}
        self.backup = {}

    @torch.no_grad()
    def update(self):
        for name, p in self.model.named_parameters():
            self.shadow[name].lerp_(p, 1 - self.decay)

    @contextmanager
    def swapped(self):
        # TODO(fsdp-migrate FM520): reshard first: `for module in model.modules(): if
        #   isinstance(module, FSDPModule): module.reshard()`
        for name, p in self.model.named_parameters():
            self.backup[name] = p.data.clone()
            p.data.copy_(self.shadow[name])
        yield
        # TODO(fsdp-migrate FM520): reshard first: `for module in model.modules(): if
        #   isinstance(module, FSDPModule): module.reshard()`
        for name, p in self.model.named_parameters():
            p.data.copy_(self.backup[name])

    def from_file(self, path):
        state = torch.load(path)
        for name, p in self.model.named_parameters():
            # TODO(fsdp-migrate FM514): use `full_tensor()` for whole values or
            #   `to_local()` for this rank's, and drop reductions of your own
            p.data.copy_(state[name])
