"""Records what checkpoints are made of: the name, kind and content of every tensor that is saved.

Two ways are seen. `torch.save` writes what it is given on one rank: under FSDP1 a bare `model.state_dict()`
is the full model, under FSDP2 it is this rank's shards, which it writes without a word under their full
shapes. `torch.distributed.checkpoint` writes shards as such; its planner is given them all.
"""

from __future__ import annotations

import functools
import itertools
import math
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from fsdp_migrate.verify.model import SAVED
from fsdp_migrate.verify.probes.session import Session
from fsdp_migrate.verify.probes.shards import Slot, is_dtensor, local_part, slots_of_tensor

_MOST_TENSORS = 20_000
_MOST_NUMBERS = 2000
_LONGEST_LIST = 32
_DISTRIBUTED = "torch.distributed.checkpoint"


def attach(session: Session) -> None:
    """Wrap `torch.save`, and the planner of distributed checkpoints."""
    original = torch.save

    @functools.wraps(original)
    def save(obj: Any, *arguments: Any, **keywords: Any) -> None:
        with session.probing() as active:
            if active and not _is_within_distributed():
                _record(session, obj, distributed=False)
        original(obj, *arguments, **keywords)

    torch.save = save
    session.at_first_model.append(lambda: _planners(session))


def _planners(session: Session) -> None:
    """Called with the first model: a job that has not imported distributed checkpoints by then does so later,
    and gets the wrapped planner.
    """
    from torch.distributed.checkpoint.default_planner import DefaultSavePlanner

    original = DefaultSavePlanner.set_up_planner

    @functools.wraps(original)
    def set_up_planner(self: Any, state_dict: Any, *arguments: Any, **keywords: Any) -> Any:
        with session.probing() as active:
            if active and threading.current_thread() is threading.main_thread():
                _record(session, state_dict, distributed=True)
            elif active:
                session.note("tensors saved in checkpoints: they are written in the background")
        return original(self, state_dict, *arguments, **keywords)

    DefaultSavePlanner.set_up_planner = set_up_planner  # type: ignore[method-assign]


def _is_within_distributed() -> bool:
    """Whether distributed checkpoints call `torch.save`, for each piece of what their planner was given."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith(_DISTRIBUTED):
            return True
        frame = frame.f_back
    return False


def _record(session: Session, obj: Any, *, distributed: bool) -> None:
    if numbers := dict(itertools.islice(_numbers(obj, ""), _MOST_NUMBERS)):
        session.recorder.event("saved_numbers", step=session.step, numbers=numbers)
    number = session.saves + 1
    whole: list[tuple[Slot, Tensor]] = []
    partial: list[str] = []
    names: list[str] = []
    for name, tensor in _leaves(obj, ""):
        if len(names) == _MOST_TENSORS:
            break
        names.append(name)
        label = f"file {number}, {name}"
        if distributed:
            whole += _pieces(label, tensor)
        elif _is_part(tensor):
            partial.append(name)
        else:
            whole += _piece(label, tuple(local_part(tensor).shape), tensor)
    if names:  # pickling a storage calls torch.save too
        session.saves = number
        session.recorder.event("save", step=session.step, names=names, partial=partial)
        session.recorder.sketches(session.step, SAVED, whole)


def _pieces(label: str, tensor: Any) -> Iterator[tuple[Slot, Tensor]]:
    """This rank's pieces of a tensor, with their places in it."""
    if type(tensor).__name__ == "ShardedTensor":
        shape = tuple(tensor.size())
        for shard in tensor.local_shards():
            place = tuple(shard.metadata.shard_offsets), tuple(shard.metadata.shard_sizes)
            yield from _piece(label, shape, shard.tensor, place)
    elif is_dtensor(tensor):
        local = local_part(tensor).reshape(-1)
        yield from ((slot, slot.of(local)) for slot in slots_of_tensor(label, tensor) or ())
    else:
        yield from _piece(label, tuple(tensor.shape), tensor)


def _piece(
    label: str,
    shape: tuple[int, ...],
    tensor: Tensor,
    place: tuple[tuple[int, ...], tuple[int, ...]] | None = None,
) -> Iterator[tuple[Slot, Tensor]]:
    """A strided tensor as a stretch; rows of a full tensor are a contiguous one there.

    Args:
        shape: of the full tensor.
        place: offsets and sizes of this piece; `None` where it is the whole.
    """
    local = local_part(tensor)
    if not local.numel() or local.layout is not torch.strided or local.is_quantized:
        return
    offsets, sizes = place or ((0,) * len(shape), shape)
    if sizes[1:] == shape[1:]:
        slot = Slot(label, shape, 0, local.numel(), offsets[0] * math.prod(shape[1:]) if shape else 0)
    else:
        slot = Slot(label, shape, 0, local.numel(), None, (offsets, sizes))
    yield slot, local.reshape(-1)


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Tensors of nested dictionaries and lists, by the keys that lead to them."""
    if isinstance(value, Tensor) or type(value).__name__ == "ShardedTensor":
        yield path, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for position, inner in enumerate(value):
            yield from _leaves(inner, f"{path}.{position}" if path else str(position))


def _numbers(value: Any, path: str) -> Iterator[tuple[str, float]]:
    """Plain numbers likewise, but for long lists: states of generators, orders of data."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if math.isfinite(value):
            yield path, value
        return
    entries: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        entries = value.items()
    elif isinstance(value, list | tuple) and len(value) <= _LONGEST_LIST:
        entries = enumerate(value)
    for key, inner in entries:
        if key != "params":  # positions of an optimizer's parameters
            yield from _numbers(inner, f"{path}.{key}" if path else str(key))


def _is_part(tensor: Any) -> bool:
    """Whether this rank holds a part only of what the tensor claims to be."""
    if type(tensor).__name__ == "ShardedTensor":
        return True
    # Below tensor parallelism the placement is a `_StridedShard`, which is no `is_shard()`.
    return any(not placement.is_replicate() for placement in getattr(tensor, "placements", ()))
