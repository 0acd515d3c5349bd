"""Records what `torch.save` is given: the name, kind and content of every tensor.

Under FSDP1 a bare `model.state_dict()` is the full model, under FSDP2 it is this rank's shards, which
`torch.save` writes without a word under their full shapes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from fsdp_migrate.verify.model import SAVED
from fsdp_migrate.verify.probes.session import Session
from fsdp_migrate.verify.probes.shards import Slot, local_part

_MOST_TENSORS = 20_000


def attach(session: Session) -> None:
    """Wrap `torch.save`."""
    original = torch.save

    @functools.wraps(original)
    def save(obj: Any, *arguments: Any, **keywords: Any) -> None:
        with session.probing() as active:
            if active:
                _record(session, obj)
        original(obj, *arguments, **keywords)

    torch.save = save


def _record(session: Session, obj: Any) -> None:
    number = session.saves + 1
    whole: list[tuple[Slot, Tensor]] = []
    partial: list[str] = []
    names: list[str] = []
    for name, tensor in _leaves(obj, ""):
        if len(names) == _MOST_TENSORS:
            break
        names.append(name)
        if _is_part(tensor):
            partial.append(name)
            continue
        local = local_part(tensor)
        if local.numel() and local.layout is torch.strided and not local.is_quantized:
            shape = tuple(local.shape)
            label = f"file {number}, {name}"
            whole.append((Slot(label, shape, 0, math.prod(shape), 0), local.reshape(-1)))
    if names:  # pickling a storage calls torch.save too
        session.saves = number
        session.recorder.event("save", step=session.step, names=names, partial=partial)
        session.recorder.sketches(session.step, SAVED, whole)


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


def _is_part(tensor: Any) -> bool:
    """Whether this rank holds a part only of what the tensor claims to be."""
    if type(tensor).__name__ == "ShardedTensor":
        return True
    return any(placement.is_shard() for placement in getattr(tensor, "placements", ()))
