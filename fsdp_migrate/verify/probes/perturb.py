"""Changes gradients and weights by the size of rounding, to see how far it grows; see `verify/noise.py`."""

from __future__ import annotations

import torch
from torch import Tensor

from fsdp_migrate.verify.probes.keys import mixed


def nudge(values: Tensor, size: float, *, of_sums: bool = False) -> None:
    """Multiply every element by 1 + size or 1 - size, the sign drawn from its position; in place.

    Args:
        of_sums: change elements that are not 0 by as much as one of usual size, however small they are: where
            terms nearly cancel, adding them up in another order changes what is left by as much.
    """
    flat = torch.arange(values.numel(), device=values.device)
    signs = ((mixed(flat) >> 17) & 1) * 2 - 1
    if of_sums:
        wide = values.to(torch.float64)
        usual = wide.square().mean().sqrt()
        added = size * signs.view_as(wide) * torch.maximum(wide.abs(), usual)
        values.copy_(torch.where(values == 0, wide, wide + added))
        return
    values.mul_((1 + size * signs.to(torch.float64)).to(values.dtype).view_as(values))
