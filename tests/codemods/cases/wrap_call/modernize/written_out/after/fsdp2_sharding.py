"""What sharded models get beyond what FSDP1 did for them.

Written by fsdp-migrate; plain PyTorch, yours to edit.
"""

import functools

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts


def checkpoint_units_selectively(model: nn.Module) -> None:
    """Units compute activations again in the backward pass, all but the dear ones.

    The results of matrix products and of attention are kept. Those units that hold no
    others, and only what they compute: FSDP gathers and casts around it, and parameters
    keep their names.
    """
    aten = torch.ops.aten
    kept = [
        aten.mm.default,
        aten.addmm.default,
        aten.bmm.default,
        aten._scaled_dot_product_flash_attention.default,
        aten._scaled_dot_product_efficient_attention.default,
    ]
    contexts = functools.partial(create_selective_checkpoint_contexts, kept)
    units = [m for m in model.modules() if isinstance(m, FSDPModule) and m is not model]
    for unit in units:
        if sum(isinstance(m, FSDPModule) for m in unit.modules()) == 1:
            unit.forward = functools.partial(
                checkpoint, unit.forward, use_reentrant=False, context_fn=contexts
            )


def prefetch_units(model: nn.Module, ahead: int) -> None:
    """While a unit computes, the parameters of the next `ahead` units are gathered.

    Units have to run in the order of the modules; each costs the memory of its
    parameters a little longer.
    """
    units: list[FSDPModule] = [
        m for m in model.modules() if isinstance(m, FSDPModule) and m is not model
    ]
    for i, unit in enumerate(units):
        unit.set_modules_to_forward_prefetch(units[i + 1 : i + 1 + ahead])
        unit.set_modules_to_backward_prefetch(units[max(i - ahead, 0) : i][::-1])
