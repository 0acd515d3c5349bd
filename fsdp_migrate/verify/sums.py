"""The sums that `probes/sketch.py` makes in a job, made of elements that were kept.

One arm may keep a tensor in full where the other keeps sums of it: ranks keep as much as their limit allows,
and two records may be made with other limits. Sums of both are compared then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsdp_migrate.verify.record import Sums

if TYPE_CHECKING:
    from fsdp_migrate.verify.record import Part


def sums_of(part: Part) -> Sums:
    """Sums of a part, whichever way it was kept; torch is imported only to make them."""
    if part.sums is not None:
        return part.sums
    import torch

    from fsdp_migrate.verify.probes.shards import Slot
    from fsdp_migrate.verify.probes.sketch import sketch

    assert part.stored is not None
    values = torch.from_numpy(part.stored.view(f"i{part.stored.itemsize}").copy())
    values = values.view(getattr(torch, part.dtype))
    made = sketch(Slot(part.name, part.shape, 0, part.numel, part.start, part.box), values)
    return Sums(made.digest, made.further, made.square, made.projections)
