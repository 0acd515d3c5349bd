import copy

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import _traversal_utils
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from model import Block, Model, batch, loss_of


class Average:
    """Whole weights in a dictionary."""

    def __init__(self, module, decay):
        self.decay = decay
        self.shadow = {}
        with FSDP.summon_full_params(module, writeback=False):
            for name, parameter in module.named_parameters():
                self.shadow[name] = parameter.detach().clone().float()

    @torch.no_grad()
    def update(self, module):
        with FSDP.summon_full_params(module, writeback=False):
            for name, parameter in module.named_parameters():
                new = parameter.detach().float()
                self.shadow[name].mul_(self.decay).add_(new, alpha=1.0 - self.decay)

    @torch.no_grad()
    def copy_to(self, module):
        with FSDP.summon_full_params(module, writeback=True):
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
    for old, new in zip(FSDP.fsdp_modules(ema), FSDP.fsdp_modules(model)):
        for one, other in zip(old.parameters(), new.parameters()):
            one.data.mul_(decay).add_(other.data, alpha=1 - decay)


@torch.no_grad()
def by_handles(ema, model, decay):
    handles = _traversal_utils._get_fsdp_handles(ema)
    for old, new in zip(handles, _traversal_utils._get_fsdp_handles(model)):
        if new.flat_param.requires_grad:
            old.flat_param.data.mul_(decay).add_(new.flat_param.data, alpha=1 - decay)


@torch.no_grad()
def after_an_evaluation(model, average):
    model(batch(0))
    for name, parameter in model.named_parameters():
        average[name].lerp_(parameter, 0.1)


def wrapped(model):
    return FSDP(
        model,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )


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
