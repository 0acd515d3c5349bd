"""The layout of a model at hand: every parameter its modules register, under FSDP1 or before it.

Needs no torch of its own: it only looks at modules that were built elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from checkpoint_convert.errors import LayoutError
from checkpoint_convert.layout import ModelLayout, ModuleSpec, ParameterSpec
from checkpoint_convert.model import BY_TORCH_NAME
from checkpoint_convert.readers.names import WRAPPERS

if TYPE_CHECKING:
    import torch
    from torch import nn

Attribute: TypeAlias = tuple[int, str]
"""A module's attribute: the `id` of the module, and the name."""


@dataclass(frozen=True, slots=True, eq=False)
class Flattened:
    """One parameter inside a flat parameter, and what that says of it.

    Attributes:
        primary: the attribute that the flat parameter names it by; another one's where it is tied.
    """

    flat: torch.Tensor
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    primary: Attribute


def layout_of(
    model: nn.Module, origin: str = "", flattened: Mapping[Attribute, Flattened] | None = None
) -> ModelLayout:
    """All registrations in the order of the model's own modules, wrappers left out.

    Args:
        origin: for messages: the factory or the file.
        flattened: what FSDP1 took into flat parameters.
    """
    inside = flattened or {}
    specs: list[ParameterSpec] = []
    modules: list[ModuleSpec] = []
    buffers: list[str] = []
    tensors: dict[object, int] = {}
    slots: dict[Attribute, int] = {}
    for path, module in own_modules(model):
        modules.append(ModuleSpec(path, _class_names(type(module))))
        for name in _registered(module, inside):
            key = (id(module), name)
            known, value = inside.get(key), module._parameters.get(name)
            number = tensors.setdefault(id(value) if known is None else known.primary, len(tensors))
            slot = slots.setdefault(key, len(slots))
            fqn = f"{path}.{name}" if path else name
            specs.append(_spec(fqn, value, known, number, slot))
        buffers += _persistent_buffers(path, module)
    return ModelLayout(tuple(specs), tuple(modules), tuple(buffers), origin=origin)


def own_modules(module: nn.Module, path: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The model's modules by clean FQN, in pre-order, one reachable by two paths under both; no wrappers.

    Raises:
        LayoutError: a module of the model itself is called as wrappers call what they are around.
    """
    inside = [(name, child) for name, child in module._modules.items() if child is not None]
    called = next((name for name, _ in inside if name in WRAPPERS), None)
    if called is not None and len(inside) == 1 and not _own_parameters(module):
        yield from own_modules(inside[0][1], path)
        return
    if called is not None:
        raise LayoutError(
            f"{path or 'the model'} has a module called {called}, as wrappers call what they are around: its "
            "parameters' names cannot be told from names with a wrapper in them",
            hint="Save a full state dict in the old job, rename the module in it and in the model.",
        )
    yield path, module
    for name, child in inside:
        yield from own_modules(child, f"{path}.{name}" if path else name)


def _own_parameters(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """A module's own parameters, whatever they are called, without the flat parameter FSDP1 gave it."""
    there = [(name, value) for name, value in module._parameters.items() if value is not None]
    return [(name, value) for name, value in there if not hasattr(value, "_param_infos")]


def _registered(module: nn.Module, flattened: Mapping[Attribute, Flattened]) -> list[str]:
    """Names of a module's parameters; flattened ones in flat order where FSDP1 took them out of it."""
    there = [name for name, _ in _own_parameters(module)]
    taken = [name for owner, name in flattened if owner == id(module)]
    if all(name in there for name in taken):
        return there
    return [*taken, *(name for name in there if name not in taken)]


def _spec(
    fqn: str, value: nn.Parameter | None, known: Flattened | None, number: int, slot: int
) -> ParameterSpec:
    """The spec of one registration."""
    tensor = known.flat if value is None and known is not None else value
    assert tensor is not None
    told = known.flat if known is not None else tensor
    dtype = BY_TORCH_NAME.get(str(told.dtype).removeprefix("torch."))
    if dtype is None:
        raise LayoutError(
            f"parameter {fqn} is of {told.dtype}, which FSDP1 does not flatten",
            hint="Convert it separately, or leave it out of the model.",
        )
    shape, stride = (known.shape, known.stride) if known else (tuple(tensor.shape), tuple(tensor.stride()))
    return ParameterSpec(fqn, shape, stride, dtype, tensor.requires_grad, number, slot)


def _class_names(kind: type) -> tuple[str, ...]:
    """A class and its bases below `nn.Module`, dotted."""
    return tuple(
        f"{base.__module__}.{base.__qualname__}"
        for base in kind.__mro__
        if base is not object and base.__qualname__ != "Module"
    )


def _persistent_buffers(path: str, module: nn.Module) -> list[str]:
    """FQNs of the buffers that a module's own state dict has."""
    left_out: set[str] = getattr(module, "_non_persistent_buffers_set", set())
    return [
        f"{path}.{name}" if path else name
        for name, value in module._buffers.items()
        if value is not None and name not in left_out
    ]
