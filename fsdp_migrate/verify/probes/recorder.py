"""Writes what one rank saw: events as JSON lines, tensors as raw bytes beside them. No communication.

Every rank writes only what it holds, so a probe can neither deadlock a job nor reorder its collectives; the
full tensors are put together by the comparison.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from fsdp_migrate.verify.probes.raw_bytes import raw_bytes
from fsdp_migrate.verify.probes.shards import Slot
from fsdp_migrate.verify.probes.sketch import Sketch, sketches
from fsdp_migrate.verify.schedule import SMALL_BYTES_PER_RANK
from fsdp_migrate.verify.spec import EVENTS, TENSORS

Stretches = Iterable[tuple[Slot, Tensor]]


SMALL_BYTES = 1 << 14
"""Stretches up to this size are kept in full for as long as the budget lasts."""
GROUP_BYTES = SMALL_BYTES_PER_RANK
"""So is all of a quantity that one rank holds, where it is no more than this."""
START_BYTES = 1 << 27
"""And of the initial weights, which are kept once, up to this: a record of a large model is no copy of it."""
_JOINED = 1 << 16
"""Elements that are copied to be written at once."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A stretch as it was at one moment: its elements, or their sums."""

    slot: Slot
    dtype: torch.dtype
    values: Tensor | None
    sums: Sketch | None

    def same(self, other: Kept) -> bool:
        """Whether both are of the same place and equal; `False` where they were not kept alike."""
        if (self.slot.name, self.dtype) != (other.slot.name, other.dtype):
            return False
        if self.values is not None and other.values is not None:
            return torch.equal(self.values, other.values.to(self.values.device))
        if self.sums is None or other.sums is None:
            return False
        mine, others = self.sums, other.sums
        return (mine.digest, mine.further) == (others.digest, others.further)


class Recorder:
    """The record of one rank in one arm.

    Writing elements costs more than anything else a probe does (new pages of memory, for the most part), and
    most of all where tensors are large. So of quantities larger than `GROUP_BYTES` only the small tensors are
    kept in full, and sums of the others.

    Args:
        folder: made here.
        full_limit_bytes: tensors written in full; what comes later is only sketched.
        every_element: keep large tensors in full too, up to that limit.
    """

    def __init__(self, folder: Path, full_limit_bytes: int, *, every_element: bool = False) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self._events = (folder / EVENTS).open("w", encoding="utf-8")
        self._tensors = (folder / TENSORS).open("wb", buffering=1 << 20)
        self._written = 0
        self._left = full_limit_bytes
        self._every_element = every_element

    def event(self, event: str, /, **fields: object) -> None:
        """Write one event."""
        self._events.write(json.dumps({"event": event, **fields}) + "\n")
        self._events.flush()

    def tensors(self, step: int, quantity: str, stretches: Stretches) -> None:
        """Write every stretch of one quantity, in full or as sums."""
        self.write(step, quantity, self.taken(stretches, copy=False, every_element=step == 0))

    def taken(self, stretches: Stretches, *, copy: bool = True, every_element: bool = False) -> list[Kept]:
        """What is to be kept of every stretch, at this moment.

        Args:
            copy: elements may change before they are written.
            every_element: up to `START_BYTES` (what is kept once costs no step anything).
        """
        held = [_as_real(slot, values) for slot, values in stretches if slot.numel]
        sizes: dict[tuple[torch.dtype, torch.device], int] = {}
        for slot, values in held:
            key = (values.dtype, values.device)
            sizes[key] = sizes.get(key, 0) + slot.numel * values.dtype.itemsize
        left = self._left
        found: list[Kept | None] = []
        for slot, values in held:
            size, group = slot.numel * values.dtype.itemsize, sizes[values.dtype, values.device]
            is_small = size <= SMALL_BYTES or group <= GROUP_BYTES
            is_start = every_element and group <= START_BYTES
            if (is_small or is_start or self._every_element) and size <= left:
                left -= size
                found.append(Kept(slot, values.dtype, _copied(values) if copy else values, None))
            else:
                found.append(None)
        large = [pair for pair, kept in zip(held, found, strict=True) if kept is None]
        sums = iter(_kept_as_sums(large))
        return [next(sums) if kept is None else kept for kept in found]

    def sketches(self, step: int, quantity: str, stretches: Stretches) -> None:
        """Write sums of every stretch, however small."""
        held = [_as_real(slot, values) for slot, values in stretches]
        self.write(step, quantity, _kept_as_sums(held))

    def write(self, step: int, quantity: str, kept: list[Kept]) -> None:
        """Write what was taken of one quantity, an event for each dtype."""
        by_type: dict[torch.dtype, list[Kept]] = {}
        for each in kept:
            by_type.setdefault(each.dtype, []).append(each)
        for dtype, group in by_type.items():
            items: list[dict[str, object]] = [
                {"slot": _place(each.slot), "sketch": _words(each.sums)}
                for each in group
                if each.sums is not None
            ]
            items += self._elements(dtype, [each for each in group if each.values is not None])
            self.event("tensors", step=step, quantity=quantity, dtype=_name(dtype), items=items)

    def _elements(self, dtype: torch.dtype, group: list[Kept]) -> list[dict[str, object]]:
        """Write elements; where they lie."""
        parts = [each.values.reshape(-1) for each in group if each.values is not None]
        for part in _on_host(parts):
            stored = part.contiguous()
            self._tensors.write(raw_bytes(stored))
        items: list[dict[str, object]] = []
        for each in group:
            items.append({"slot": _place(each.slot), "at": self._written})
            size = each.slot.numel * dtype.itemsize
            self._written += size
            self._left -= size
        if parts:
            self._tensors.flush()
        return items

    def close(self) -> None:
        """Flush and close both files."""
        self._events.close()
        self._tensors.close()


def _kept_as_sums(held: list[tuple[Slot, Tensor]]) -> list[Kept]:
    made = zip(held, sketches(held), strict=True)
    return [Kept(slot, values.dtype, None, sums) for (slot, values), sums in made]


def _words(sums: Sketch) -> dict[str, object]:
    """Sums as the record keeps them; `asdict` takes longer than making them."""
    return {
        "digest": sums.digest,
        "further": sums.further,
        "square": sums.square,
        "projections": sums.projections,
    }


def _copied(values: Tensor) -> Tensor:
    """On the host, where they take no memory of the job's device."""
    return values.clone() if values.device.type == "cpu" else values.cpu()


def _on_host(parts: list[Tensor]) -> list[Tensor]:
    """The same elements in the same order; one copy from a device is faster than many, as of small parts."""
    found: list[Tensor] = []
    for device, some in itertools.groupby(parts, lambda part: part.device):
        alike = list(some)
        is_small = sum(part.numel() for part in alike) <= _JOINED
        found += [torch.cat(alike).cpu()] if is_small or device.type != "cpu" else alike
    return found


def _as_real(slot: Slot, values: Tensor) -> tuple[Slot, Tensor]:
    """A complex tensor as a real one with a last dimension of 2 (rotary embeddings are kept so)."""
    if not values.is_complex():
        return slot, values
    box = slot.box and ((*slot.box[0], 0), (*slot.box[1], 2))
    start = None if slot.start is None else 2 * slot.start
    pairs = Slot(slot.name, (*slot.shape, 2), 2 * slot.begin, 2 * slot.numel, start, box)
    return pairs, torch.view_as_real(values.resolve_conj()).reshape(-1)


def _place(slot: Slot) -> list[object]:
    """A slot as the record keeps it: name, shape, numel, start, box."""
    return [slot.name, slot.shape, slot.numel, slot.start, slot.box]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def whole(name: str, tensor: Tensor) -> tuple[Slot, Tensor]:
    """A tensor that every rank holds entirely."""
    local = tensor.detach()
    return Slot(name, tuple(local.shape), 0, math.prod(local.shape), 0), local.reshape(-1)
