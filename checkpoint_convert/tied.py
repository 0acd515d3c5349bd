"""Tied parameters: names that share a tensor, and the one under which it is written."""

from __future__ import annotations

from collections.abc import Iterator

from checkpoint_convert.errors import LayoutError
from checkpoint_convert.model import Contents, TensorSource
from checkpoint_convert.stored_tensor import StoredTensor


def tied_pairs(contents: Contents) -> Iterator[tuple[str, str]]:
    """(name, first name) of tied parameters that the source holds as two tensors: to be compared."""
    for name, first in contents.aliases.items():
        one, other = contents.model.get(name), contents.model.get(first)
        if one is not None and other is not None and not _same_memory(one, other):
            yield name, first


def _same_memory(one: TensorSource, other: TensorSource) -> bool:
    if isinstance(one, StoredTensor) and isinstance(other, StoredTensor):
        views = [(tensor.offset, tensor.dtype, tensor.shape, tensor.stride) for tensor in (one, other)]
        return one.storage is other.storage and views[0] == views[1]
    return one is other


def first_names(contents: Contents, unequal: frozenset[str]) -> dict[str, str]:
    """Name -> the name under which its tensor is written, for every name but the first of a tied group."""
    firsts: dict[str, str] = {}
    order = {name: number for number, name in enumerate(contents.model)}
    groups: dict[str, list[str]] = {}
    for name, first in contents.aliases.items():
        if name in unequal or name == first:
            continue
        root = contents.aliases.get(first, first)
        groups.setdefault(root, [root]).append(name)
    for names in groups.values():
        # The name that has bytes of its own and comes first in the model leads.
        present = sorted((name for name in names if name in order), key=lambda name: order[name])
        if not present:
            raise LayoutError(f"tied names {', '.join(names)}: the source holds none of them")
        firsts.update({name: present[0] for name in names if name != present[0]})
    return firsts
