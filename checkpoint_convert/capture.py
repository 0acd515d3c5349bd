"""`capture_layout`: write down, inside the old job, what its flat checkpoints leave out.

Works on a model under FSDP1 and on one before it, with every torch from 1.13 on, and reads only attributes:
no collective is run, so one rank may call it. Source: `torch/distributed/fsdp/_flat_param.py`
(`FlatParameter`; `flat_param.py` before 2.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checkpoint_convert.errors import LayoutError
from checkpoint_convert.layout import ModelLayout, ModuleSpec, ParameterSpec, UnitSpec, to_json
from checkpoint_convert.meta_model import (
    class_names,
    layout_of,
    own_modules,
    own_parameters,
    parameter_spec,
    persistent_buffers,
)
from checkpoint_convert.model import BY_TORCH_NAME
from checkpoint_convert.readers.names import clean
from checkpoint_convert.stored_tensor import row_major

if TYPE_CHECKING:
    import torch
    from torch import nn

_FSDP_MODULE = "torch.distributed.fsdp.fully_sharded_data_parallel"


def capture_layout(
    model: nn.Module, path: str | Path | None = None, optimizer: torch.optim.Optimizer | None = None
) -> ModelLayout:
    """Note a model's parameters, units and, with an optimizer, parameter groups.

    Args:
        model: under FSDP1, or before it is wrapped (units are then not known).
        path: where to write the `layout.json`; nothing is written without it.
        optimizer: the job's own; its groups decide how a raw optimizer checkpoint is numbered.

    Raises:
        LayoutError: a parameter group holds something that is no parameter of the model.
    """
    import torch

    handles = list(_handles(model))
    layout = _wrapped_layout(model, handles) if handles else layout_of(model, "")
    layout = replace(layout, torch_version=str(torch.__version__), world_size=_world_size(model, handles))
    if optimizer is not None:
        layout = replace(layout, groups=tuple(_groups(model, handles, optimizer)))
    if path is not None:
        Path(path).write_text(to_json(layout), encoding="utf-8")
    return layout


def _is_fsdp(module: object) -> bool:
    return any(
        kind.__name__ == "FullyShardedDataParallel" and kind.__module__ == _FSDP_MODULE
        for kind in type(module).__mro__
    )


def _handles(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """Clean FQN and handle of every unit that has one; releases keep them in different places."""
    for path, module in model.named_modules():
        if not _is_fsdp(module):
            continue
        handle: Any = getattr(module, "_handle", None)
        found = [handle] if handle is not None else list(getattr(module, "_handles", None) or [])
        for one in found:
            yield clean(path), one


def _flat(handle: Any) -> Any:
    return handle.flat_param


def _members(handle: Any) -> list[tuple[Any, str, str, tuple[int, ...], tuple[int, ...]]]:
    """Module, its path inside the unit, attribute, shape and stride of each parameter, in order."""
    flat = _flat(handle)
    infos, shapes = list(flat._param_infos), [tuple(shape) for shape in flat._shapes]
    strides = getattr(flat, "_strides", None)
    rows = [tuple(stride) for stride in strides] if strides else [row_major(shape) for shape in shapes]
    return [
        (info.module, info.module_name, info.param_name, shape, stride)
        for info, shape, stride in zip(infos, shapes, rows, strict=True)
    ]


def _wrapped_layout(model: nn.Module, handles: Sequence[tuple[str, Any]]) -> ModelLayout:
    """Registrations and units of a model under FSDP1."""
    held: dict[tuple[int, str], _Held] = {}
    shared: dict[tuple[int, str], tuple[int, str]] = {}
    units = []
    for prefix, handle in handles:
        members = []
        for module, inner, name, shape, stride in _members(handle):
            held[(id(module), name)] = _Held(_flat(handle), shape, stride)
            members.append(clean(".".join(part for part in (prefix, inner, name) if part)))
        for info in _flat(handle)._shared_param_infos:
            primary = (id(info.prim_module), info.prim_param_name)
            shared[(id(info.module), info.param_name)] = primary
            held[(id(info.module), info.param_name)] = held[primary]
        strategy = getattr(getattr(handle, "_sharding_strategy", None), "name", "")
        units.append(UnitSpec(prefix, tuple(members), strategy != "NO_SHARD"))
    specs, modules, buffers = _walk(model, held, shared)
    return ModelLayout(
        specs,
        modules,
        buffers,
        units=tuple(units),
        use_orig_params=bool(getattr(handles[0][1], "_use_orig_params", False)),
    )


class _Held:
    """What a flat parameter says about one of its parameters."""

    def __init__(self, flat: torch.Tensor, shape: tuple[int, ...], stride: tuple[int, ...]) -> None:
        self.flat, self.shape, self.stride = flat, shape, stride


def _walk(
    model: nn.Module, held: dict[tuple[int, str], _Held], shared: dict[tuple[int, str], tuple[int, str]]
) -> tuple[tuple[ParameterSpec, ...], tuple[ModuleSpec, ...], tuple[str, ...]]:
    """All registrations in the order of the model's own modules, wrappers left out."""
    specs: list[ParameterSpec] = []
    modules: list[ModuleSpec] = []
    buffers: list[str] = []
    tensors: dict[object, int] = {}
    slots: dict[tuple[int, str], int] = {}
    for path, module in own_modules(model):
        modules.append(ModuleSpec(path, class_names(type(module))))
        for name in _registered(module, held):
            key = (id(module), name)
            fqn = f"{path}.{name}" if path else name
            slot = slots.setdefault(key, len(slots))
            value = module._parameters.get(name)
            identity: object = shared.get(key, key) if key in held else id(value)
            number = tensors.setdefault(identity, len(tensors))
            if key not in held:
                assert value is not None
                specs.append(parameter_spec(fqn, value, number, slot))
                continue
            known = held[key]
            trains = known.flat.requires_grad if value is None else value.requires_grad
            dtype = BY_TORCH_NAME[str(known.flat.dtype).removeprefix("torch.")]
            specs.append(ParameterSpec(fqn, known.shape, known.stride, dtype, trains, number, slot))
        buffers += persistent_buffers(path, module)
    return tuple(specs), tuple(modules), tuple(buffers)


def _registered(module: nn.Module, held: dict[tuple[int, str], _Held]) -> list[str]:
    """Names of a module's parameters; flattened ones in flat order where FSDP1 took them out of it."""
    there = [name for name, _ in own_parameters(module)]
    flattened = [name for owner, name in held if owner == id(module)]
    if all(name in there for name in flattened):
        return there
    return [*flattened, *(name for name in there if name not in flattened)]


def _groups(
    model: nn.Module, handles: Sequence[tuple[str, Any]], optimizer: torch.optim.Optimizer
) -> Iterator[tuple[str, ...]]:
    """FQNs per group; a flat parameter stands for its members."""
    names: dict[int, tuple[str, ...]] = {}
    for name, parameter in model.named_parameters():
        names[id(parameter)] = (clean(name),)
    for prefix, handle in handles:
        inside = [
            clean(".".join(part for part in (prefix, inner, name) if part))
            for _, inner, name, _, _ in _members(handle)
        ]
        names[id(_flat(handle))] = tuple(inside)
    for number, group in enumerate(optimizer.param_groups):
        found: list[str] = []
        for parameter in group["params"]:
            if id(parameter) not in names:
                raise LayoutError(
                    f"parameter group {number} holds a tensor of shape {tuple(parameter.shape)} that is no "
                    "parameter of the model",
                    hint="Give the model the optimizer was made for.",
                )
            found += names[id(parameter)]
        yield tuple(found)


def _world_size(model: nn.Module, handles: Sequence[tuple[str, Any]]) -> int | None:
    for _, handle in handles:
        group = getattr(handle, "process_group", None)
        if group is not None:
            return int(group.size())
    for module in model.modules():
        if _is_fsdp(module):
            size = getattr(module, "world_size", None)
            return int(size) if size is not None else None
    return None
