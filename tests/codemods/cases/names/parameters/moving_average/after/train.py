import copy

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, _traversal_utils, fully_shard

from fsdp2_sharding import summon_full_params
from model import Block, Model, batch, loss_of


class Average:
    """Whole weights in a dictionary."""

    def __init__(self, module, decay):
        self.decay = decay
        self.shadow = {}
        with summon_full_params(module, writeback=False):
            for name, parameter in module.named_parameters():
                self.shadow[name] = parameter.detach().clone().float()

    @torch.no_grad()
    def update(self, module):
        with summon_full_params(module, writeback=False):
            for name, parameter in module.named_parameters():
                new = parameter.detach().float()
                self.shadow[name].mul_(self.decay).add_(new, alpha=1.0 - self.decay)

    @torch.no_grad()
    def copy_to(self, module):
        with summon_full_params(module, writeback=True):
            for name, parameter in module.named_parameters():
                parameter.data.copy_(self.shadow[name].to(parameter.dtype))


@torch.no_grad()
def by_parameters(ema, model, decay):
    for old, new in zip(ema.parameters(), model.parameters()):
        old.data.mul_(decay).add_(new.data, alpha=1 - decay)


@torch.no_grad()
def by_names(ema, model, decay):
    current = dict(model.named_parameters())
    for name, parameter in ema.named_parameters():
        parameter.lerp_(current[name], 1 - decay)


@torch.no_grad()
def by_units(ema, model, decay):
    for old, new in zip(
        [module for module in ema.modules() if isinstance(module, FSDPModule)],
        [module for module in model.modules() if isinstance(module, FSDPModule)],
    ):
        for one, other in zip(old.parameters(), new.parameters()):
            one.data.mul_(decay).add_(other.data, alpha=1 - decay)


@torch.no_grad()
def by_handles(ema, model, decay):
    # TODO(fsdp-migrate FM516): do without FSDP1's internals: `FSDPModule` has
    #   `unshard()` and `reshard()`, parameters are DTensors
    handles = _traversal_utils._get_fsdp_handles(ema)
    # TODO(fsdp-migrate FM516): do without FSDP1's internals: `FSDPModule` has
    #   `unshard()` and `reshard()`, parameters are DTensors
    for old, new in zip(handles, _traversal_utils._get_fsdp_handles(model)):
        # TODO(fsdp-migrate FM507): there is no flat parameter: each DTensor has its own
        #   name and whole shape, `.to_local()` is this rank's part
        if new.flat_param.requires_grad:
            # TODO(fsdp-migrate FM507): there is no flat parameter: each DTensor has its
            #   own name and whole shape, `.to_local()` is this rank's part
            old.flat_param.data.mul_(decay).add_(new.flat_param.data, alpha=1 - decay)


@torch.no_grad()
def after_an_evaluation(model, average):
    model(batch(0))
    # TODO(fsdp-migrate FM520): reshard first: `for module in model.modules(): if
    #   isinstance(module, FSDPModule): module.reshard()`
    for name, parameter in model.named_parameters():
        average[name].lerp_(parameter, 0.1)


def wrapped(model):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in reversed(list(model.modules())):  # children before parents
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def main(out, handles=False):
    model = Model()
    ema = wrapped(copy.deepcopy(model))
    model = wrapped(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    average = Average(model, 0.9)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        by_parameters(ema, model, 0.9)
        by_names(ema, model, 0.9)
        by_units(ema, model, 0.9)
        average.update(model)
        losses.append(loss.item())
    shadow = {name: tensor.clone() for name, tensor in average.shadow.items()}
    average.copy_to(model)
    if handles:
        by_handles(ema, model, 0.9)
        after_an_evaluation(model, {})
    return {"model": model, "ema": ema, "losses": losses, "shadow": shadow}
