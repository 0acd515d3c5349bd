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
from checkpoint_convert.layout import ModelLayout, UnitSpec, to_json
from checkpoint_convert.module_layout import Attribute, Flattened, layout_of
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
    layout = _wrapped_layout(model, handles) if handles else layout_of(model)
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


def _members(prefix: str, handle: Any) -> tuple[str, ...]:
    """Clean FQNs of what a unit's flat parameter holds, in order."""
    return tuple(
        clean(".".join(part for part in (prefix, info.module_name, info.param_name) if part))
        for info in handle.flat_param._param_infos
    )


def _flattened(handle: Any) -> Iterator[tuple[Attribute, Flattened]]:
    """The attributes whose parameters a unit's flat parameter holds, tied ones last."""
    flat = handle.flat_param
    shapes = [tuple(shape) for shape in flat._shapes]
    strides = [tuple(stride) for stride in getattr(flat, "_strides", None) or map(row_major, shapes)]
    found: dict[Attribute, Flattened] = {}
    for info, shape, stride in zip(flat._param_infos, shapes, strides, strict=True):
        key = (id(info.module), info.param_name)
        found[key] = Flattened(flat, shape, stride, key)
    for info in flat._shared_param_infos:
        found[(id(info.module), info.param_name)] = found[(id(info.prim_module), info.prim_param_name)]
    yield from found.items()


def _wrapped_layout(model: nn.Module, handles: Sequence[tuple[str, Any]]) -> ModelLayout:
    """Registrations and units of a model under FSDP1."""
    flattened: dict[Attribute, Flattened] = {}
    units = []
    for prefix, handle in handles:
        flattened.update(_flattened(handle))
        strategy = getattr(getattr(handle, "_sharding_strategy", None), "name", "")
        units.append(UnitSpec(prefix, _members(prefix, handle), strategy != "NO_SHARD"))
    return replace(
        layout_of(model, flattened=flattened),
        units=tuple(units),
        use_orig_params=bool(getattr(handles[0][1], "_use_orig_params", False)),
    )


def _groups(
    model: nn.Module, handles: Sequence[tuple[str, Any]], optimizer: torch.optim.Optimizer
) -> Iterator[tuple[str, ...]]:
    """FQNs per group; a flat parameter stands for its members."""
    names: dict[int, tuple[str, ...]] = {}
    for name, parameter in model.named_parameters():
        names[id(parameter)] = (clean(name),)
    for prefix, handle in handles:
        names[id(handle.flat_param)] = _members(prefix, handle)
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
