"""Which names of a model share one tensor, as far as the files themselves show it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from checkpoint_convert.model import TensorSource, numel
from checkpoint_convert.readers.parts import Part
from checkpoint_convert.same_values import same_elements
from checkpoint_convert.stored_tensor import StoredTensor
from checkpoint_convert.torch_objects import DTensorOnRank, ShardedTensorOnRank

if TYPE_CHECKING:
    from checkpoint_convert.layout import ModelLayout


_BEGIN = 16
"""Elements that tell most tensors apart."""


def tied(part: Part) -> dict[str, str]:
    """Names -> the first name of the same tensor: the same view of the same storage, on every rank."""
    models: tuple[Mapping[str, object], ...] = part.local or (part.model or {},)
    first: dict[tuple[object, ...], str] = {}
    aliases: dict[str, str] = {}
    for name in dict.fromkeys(name for model in models for name in model):
        view = tuple(_view(model[name]) for model in models if name in model)
        if None in view or not any(view):
            continue
        if first.setdefault(view, name) != name:
            aliases[name] = first[view]
    return aliases


def with_ties(
    model: dict[str, TensorSource], aliases: dict[str, str], layout: ModelLayout | None
) -> tuple[dict[str, TensorSource], dict[str, str]]:
    """Add the ties the layout knows: names the file left out, and names whose elements are indeed equal."""
    for name, first in layout.aliases().items() if layout is not None else ():
        if first in model and name not in model:
            model[name] = model[first]
        if first in model and same_elements(model[first], model[name]):
            aliases[name] = first
    return model, aliases


def equal_matrices(tensors: Mapping[str, TensorSource]) -> dict[str, str]:
    """Names -> an earlier name of the same size and elements: tied embeddings that were saved twice.

    Only matrices count: vectors (norms, biases) may be equal by chance.
    """
    seen: dict[tuple[object, ...], list[str]] = {}
    found: dict[str, str] = {}
    for name, tensor in tensors.items():
        if len(tensor.shape) < 2 or numel(tensor.shape) < 2:
            continue
        # Thousands of experts are of one size; few of those begin alike.
        begin = b"".join(map(bytes, tensor.blocks(0, min(numel(tensor.shape), _BEGIN))))
        alike = seen.setdefault((tensor.shape, tensor.dtype, begin), [])
        twin = next((other for other in alike if same_elements(tensors[other], tensor)), None)
        if twin is not None:
            found[name] = twin
        else:
            alike.append(name)
    return found


def _view(value: object) -> object:
    """What tells one tensor from another; () where there are no elements, None where it cannot be told."""
    if isinstance(value, StoredTensor):
        if 0 in value.shape:
            return ()
        return (id(value.storage), value.offset, value.shape, value.stride, value.dtype)
    if isinstance(value, DTensorOnRank):
        return _view(value.local)
    if isinstance(value, ShardedTensorOnRank):
        return tuple(_view(tensor) for _, tensor in value.local)
    return None
