"""What a library does with models that its users have sharded, with either stack."""

import contextlib

from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Trainer:
    def __init__(self, model):
        self.model = model

    def micro_batch(self, is_last):
        if isinstance(self.model, FSDPModule):
            self.model.set_requires_gradient_sync(is_last)

    def clip(self, norm):
        if isinstance(self.model, FSDP):
            return self.model.clip_grad_norm_(norm)
        grads = [p.grad for p in self.model.parameters() if p.grad is not None]
        total = nn.utils.get_total_norm(grads)
        nn.utils.clip_grads_with_norm_(self.model.parameters(), norm, total)
        return total


def send(model, peer):
    if isinstance(model, FSDP):
        context = FSDP.summon_full_params(model, writeback=False)
    else:
        context = contextlib.nullcontext()
    with context:
        peer.put(dict(model.named_parameters()))


def layers_of(model):
    layers = []
    for child in model.children():
        if not isinstance(child, FSDP | FSDPModule):
            layers += layers_of(child)
            continue
        inner = child._fsdp_wrapped_module if isinstance(child, FSDP) else child
        if not isinstance(inner, nn.Embedding):
            layers.append(child)
    return layers


def inner(layer):
    if not isinstance(layer, FSDP):
        return layer
    return layer.module


def is_root(layer):
    return isinstance(layer, FSDP) and layer.check_is_root()
