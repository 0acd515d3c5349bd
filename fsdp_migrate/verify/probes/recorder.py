"""Writes what one rank saw: events as JSON lines, tensors as raw bytes beside them. No communication.

Every rank writes only what it holds, so a probe can neither deadlock a job nor reorder its collectives; the
full tensors are put together by the comparison.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor

from fsdp_migrate.verify.probes.shards import Slot
from fsdp_migrate.verify.probes.sketch import sketch
from fsdp_migrate.verify.spec import EVENTS, TENSORS

Stretches = Iterable[tuple[Slot, Tensor]]


class Recorder:
    """The record of one rank in one arm.

    Args:
        folder: made here.
        full_limit_bytes: tensors written in full; what comes later is only sketched.
    """

    def __init__(self, folder: Path, full_limit_bytes: int) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self._events = (folder / EVENTS).open("w", encoding="utf-8")
        self._tensors = (folder / TENSORS).open("wb", buffering=1 << 20)
        self._written = 0
        self._left = full_limit_bytes

    def event(self, event: str, /, **fields: object) -> None:
        """Write one event."""
        self._events.write(json.dumps({"event": event, **fields}) + "\n")
        self._events.flush()

    def tensors(self, step: int, quantity: str, stretches: Stretches) -> None:
        """Write every stretch of one quantity, in full while the budget lasts."""
        held = [_as_real(slot, values) for slot, values in stretches if slot.numel]
        by_type: dict[tuple[torch.dtype, torch.device], list[tuple[Slot, Tensor]]] = {}
        for slot, values in held:
            by_type.setdefault((values.dtype, values.device), []).append((slot, values))
        for (dtype, _), group in by_type.items():
            size = sum(slot.numel for slot, _ in group) * dtype.itemsize
            if size <= self._left:
                self._full(step, quantity, dtype, group)
                self._left -= size
            else:
                self._sketched(step, quantity, dtype, group)

    def sketches(self, step: int, quantity: str, stretches: Stretches) -> None:
        """Write sums of every stretch, however small."""
        by_type: dict[torch.dtype, list[tuple[Slot, Tensor]]] = {}
        for slot, values in (_as_real(slot, values) for slot, values in stretches):
            by_type.setdefault(values.dtype, []).append((slot, values))
        for dtype, group in by_type.items():
            self._sketched(step, quantity, dtype, group)

    def _full(self, step: int, quantity: str, dtype: torch.dtype, group: list[tuple[Slot, Tensor]]) -> None:
        parts = [values.reshape(-1) for _, values in group]
        if parts[0].device.type != "cpu":  # one copy to the host is faster than many
            parts = [torch.cat(parts).cpu()]
        for part in parts:
            self._tensors.write(part.contiguous().view(torch.uint8).numpy().data)
        items = []
        for slot, _ in group:
            items.append({"slot": _place(slot), "at": self._written})
            self._written += slot.numel * dtype.itemsize
        self._tensors.flush()
        self.event("tensors", step=step, quantity=quantity, dtype=_name(dtype), items=items)

    def _sketched(
        self, step: int, quantity: str, dtype: torch.dtype, group: list[tuple[Slot, Tensor]]
    ) -> None:
        items = [{"slot": _place(slot), "sketch": asdict(sketch(slot, values))} for slot, values in group]
        self.event("tensors", step=step, quantity=quantity, dtype=_name(dtype), items=items)

    def close(self) -> None:
        """Flush and close both files."""
        self._events.close()
        self._tensors.close()


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
