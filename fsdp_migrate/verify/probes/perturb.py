"""Changes gradients and weights by the size of rounding, to see how far it grows; see `verify/noise.py`."""

from __future__ import annotations

import torch
from torch import Tensor

from fsdp_migrate.verify.probes.keys import mixed

_CHUNK = 1 << 22
"""Elements that are changed at once: what this needs for each of them is many times its own size."""


def nudge(values: Tensor, size: float, *, of_sums: bool = False) -> None:
    """Multiply every element by 1 + size or 1 - size, the sign drawn from its position; in place.

    Args:
        of_sums: change elements that are not 0 by as much as one of usual size, however small they are: where
            terms nearly cancel, adding them up in another order changes what is left by as much.
    """
    flat = values.view(-1) if values.is_contiguous() else values.reshape(-1)
    usual = _root_mean_square(flat) if of_sums else None
    for begin in range(0, flat.numel(), _CHUNK):
        part = flat[begin : begin + _CHUNK]
        places = torch.arange(begin, begin + part.numel(), device=values.device)
        signs = ((mixed(places) >> 17) & 1) * 2 - 1
        if usual is None:
            part.mul_((1 + size * signs.to(torch.float64)).to(part.dtype))
            continue
        wide = part.to(torch.float64)
        added = size * signs * torch.maximum(wide.abs(), usual)
        part.copy_(torch.where(part == 0, wide, wide + added))
    if flat.data_ptr() != values.data_ptr():
        values.copy_(flat.view_as(values))


def _root_mean_square(flat: Tensor) -> Tensor:
    parts = [
        flat[begin : begin + _CHUNK].to(torch.float64).square().sum()
        for begin in range(0, flat.numel(), _CHUNK)
    ]
    return (torch.stack(parts).sum() / max(1, flat.numel())).sqrt() if parts else flat.new_zeros(())
