"""Puts full tensors together from the parts the ranks hold; pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fsdp_migrate.verify.record import ArmRecord, Part, Sums, widen
from fsdp_migrate.verify.sums import sums_of


@dataclass(frozen=True, slots=True)
class Whole:
    """A full tensor put together: its elements, or sums where those were not kept.

    Args:
        stored: flat, `None` where only sums of some part were kept.
        parts: one for each place; their sums are made where they are asked for.
        complete: whether the parts cover the tensor.
        replicas_differ: ranks that hold the same elements with other values.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    stored: NDArray[Any] | None
    parts: tuple[Part, ...]
    complete: bool
    replicas_differ: tuple[int, ...]

    def is_zero(self) -> bool:
        """Whether no element is other than 0."""
        if self.stored is not None:
            return not widen(self.stored, self.dtype).any()
        return not self.sums().square

    def sums(self) -> Sums:
        """Of all elements, whichever way they were kept."""
        return _add([sums_of(part) for part in self.parts])


def assemble(parts: list[Part]) -> Whole:
    """Put the parts of one tensor together; the first rank's wins where several hold the same elements."""
    first = parts[0]
    distinct: dict[object, Part] = {}
    strangers: list[int] = []
    for part in parts:
        known = distinct.setdefault(part.place, part)
        if known is not part and not _same(known, part):
            strangers.append(part.rank)
    numel = math.prod(first.shape)
    complete = sum(part.numel for part in distinct.values()) == numel
    whole: NDArray[Any] | None = None
    kept = [(part, part.stored) for part in distinct.values() if part.stored is not None]
    if len(kept) == len(distinct):
        whole = np.zeros(numel, dtype=kept[0][1].dtype)
        for part, stored in kept:
            _lay(whole, part, stored)
    return Whole(
        first.name, first.dtype, first.shape, whole, tuple(distinct.values()), complete, tuple(strangers)
    )


def _same(left: Part, right: Part) -> bool:
    if left.stored is not None and right.stored is not None:
        return left.stored.tobytes() == right.stored.tobytes()
    return sums_of(left).same(sums_of(right))


def moved(arm: ArmRecord) -> dict[str, bool]:
    """Which parameters have other values after the last step than before the first."""
    first, last = arm.tensors(1, "weight"), arm.tensors(arm.last_step, "weight")
    before = arm.tensors(0, "weight")
    return {
        name: _differ(first.get(name, []), last[name]) or _differ(before[name], last[name])
        for name in set(before) & set(last)
    }


def _differ(before: list[Part], after: list[Part]) -> bool:
    return any(not _same(a, b) for a, b in zip(before, after, strict=False))


def _lay(whole: NDArray[Any], part: Part, stored: NDArray[Any]) -> None:
    if part.box is None:
        assert part.start is not None
        whole[part.start : part.start + part.numel] = stored
        return
    offsets, sizes = part.box
    window = tuple(slice(offset, offset + size) for offset, size in zip(offsets, sizes, strict=True))
    whole.reshape(part.shape)[window] = stored.reshape(sizes)


def _add(all_sums: list[Sums]) -> Sums:
    projections = np.sum([sums.projections for sums in all_sums], axis=0)
    return Sums(
        sum(sums.digest for sums in all_sums) % (1 << 64),
        sum(sums.further for sums in all_sums) % (1 << 64),
        sum(sums.square for sums in all_sums),
        tuple(float(one) for one in projections),
    )
