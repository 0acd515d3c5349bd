"""Works around what FSDP2 asks of a device or of NCCL, in every run on CPUs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch.distributed import fsdp

Say = Callable[[str], None]


def apply(say: Say) -> None:
    """Patch FSDP2 in this process.

    Args:
        say: called with one sentence when a workaround is used.
    """
    _never_pin(say)
    _divide_afterwards(say)


def _divide_afterwards(say: Say) -> None:
    """Gloo cannot multiply on the way to a sum, as a divide factor asks."""
    module: Any = getattr(fsdp, "FSDPModule", None)
    if not hasattr(module, "set_force_sum_reduction_for_comms"):  # before torch 2.8
        return
    divide = module.set_gradient_divide_factor

    @functools.wraps(divide)
    def set_gradient_divide_factor(self: Any, factor: float) -> None:
        placed = (
            (one.device_mesh, one.placements) for one in self.parameters() if hasattr(one, "placements")
        )
        shards = [mesh.size(at) for mesh, each in placed for at, one in enumerate(each) if one.is_shard()]
        if max(shards, default=1) > 1:  # torch 2.13 divides twice where one rank holds a whole parameter
            say("FSDP2 set_gradient_divide_factor: sums are divided by it afterwards")
            self.set_force_sum_reduction_for_comms(True)
        divide(self, factor)

    module.set_gradient_divide_factor = set_gradient_divide_factor


def _never_pin(say: Say) -> None:
    """Offloading pins memory, which a torch without an accelerator cannot."""
    if not hasattr(fsdp, "CPUOffloadPolicy"):  # before torch 2.6, where FSDP2 was private
        return
    offload = fsdp.CPUOffloadPolicy.__init__

    def unpinned(self: Any, pin_memory: bool = True) -> None:
        if pin_memory:
            say("FSDP2 CPUOffloadPolicy: pin_memory=False")
        offload(self, pin_memory=False)

    fsdp.CPUOffloadPolicy.__init__ = unpinned  # type: ignore[method-assign]
