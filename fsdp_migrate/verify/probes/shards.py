"""Where the elements of a parameter are: FSDP1 flat parameters and FSDP2 DTensors, told in one way.

A `Slot` says which part of which full tensor a local tensor (or a stretch of it) holds, so that a weight of
an FSDP1 flat shard and one of an FSDP2 DTensor can be laid side by side without any communication.

Relies on `torch/distributed/fsdp/_flat_param.py` (`FlatParameter._fqns`, `_shapes`, `_shard_param_infos`,
`_params`, `_shared_param_infos`), `torch/distributed/fsdp/_fully_shard/_fsdp_param.py`
(`FSDPParam.sharded_param`, `_module_info`) and `torch/distributed/tensor/_utils.py`
(`compute_local_shape_and_global_offset`).
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from fsdp_migrate.verify.probes.wrapping import is_fsdp1, is_fsdp2

_PLAIN = (Tensor, nn.Parameter)
_WRAPPERS = frozenset({"_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod"})


@dataclass(frozen=True, slots=True)
class Slot:
    """A stretch of a local tensor and its place in the full one.

    Args:
        name: FQN without wrapper prefixes.
        shape: of the full tensor.
        begin: first element in the local tensor, flattened.
        numel: elements of the stretch.
        start: flat index of its first element in the full tensor; `None` when the part is not contiguous
            there.
        box: offset and size per dimension, where `start` is `None`.
    """

    name: str
    shape: tuple[int, ...]
    begin: int
    numel: int
    start: int | None
    box: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    def of(self, local: Tensor) -> Tensor:
        """This stretch of `local`, 1-D."""
        flat = local.reshape(-1)
        return flat if self.numel == local.numel() else flat[self.begin : self.begin + self.numel]


@dataclass(slots=True)
class Holder:
    """A parameter object as the optimizer knows it, and what it holds.

    Args:
        parameter: an original or flat parameter of FSDP1, a DTensor of FSDP2, or a plain one.
        slots: empty on a rank that holds no element.
        local_numel: elements of the local tensor when sharded; a gradient of another size is not reduced yet.
    """

    parameter: Tensor
    slots: tuple[Slot, ...]
    local_numel: int


@dataclass(slots=True)
class ParameterIndex:
    """All parameters of a model at one moment.

    Attributes:
        holders: one per parameter object that carries values.
        by_id: the objects an optimizer may hold, by `id`; FSDP1 flat parameters and their views both stand
            here.
        shapes: full shape of every parameter, by canonical name.
        sharded: whether FSDP manages it, by canonical name.
        tied: groups of names that share one parameter.
        unreadable: parameters whose layout is not understood, with the reason.
    """

    holders: list[Holder] = field(default_factory=list)
    by_id: dict[int, Holder] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    trainable: dict[str, bool] = field(default_factory=dict)
    sharded: dict[str, bool] = field(default_factory=dict)
    tied: list[tuple[str, ...]] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)
    _elements: int | None = None

    @property
    def elements(self) -> int:
        """Of all parameters, each counted whole and once."""
        if self._elements is None:
            self._elements = sum(math.prod(shape) for shape in self.shapes.values())
        return self._elements

    def weights(self) -> Iterator[tuple[Slot, Tensor]]:
        """Every local stretch of every parameter, with its values."""
        for holder in self.holders:
            yield from _stretches(holder, local_part(stored_weight(holder.parameter)))

    def gradients(self) -> Iterator[tuple[Slot, Tensor]]:
        """Every local stretch of every gradient that is there and reduced."""
        seen: set[int] = set()
        for holder in self.by_id.values():
            gradient = holder.parameter.grad
            if gradient is None or id(holder) in seen:
                continue
            seen.add(id(holder))
            yield from _stretches(holder, local_part(gradient))


def _stretches(holder: Holder, local: Tensor) -> Iterator[tuple[Slot, Tensor]]:
    if local.numel() == holder.local_numel:
        for slot in holder.slots:
            yield slot, slot.of(local)


def stored_weight(parameter: Tensor) -> Tensor:
    """The sharded values; an FSDP1 flat parameter may be gathered at this moment."""
    if is_dtensor(parameter):  # whose `data` is a dispatched operation
        return parameter
    shard: Tensor = getattr(parameter, "_local_shard", parameter.data)
    return shard


def local_part(tensor: Tensor) -> Tensor:
    """The tensor's own memory on this rank, detached."""
    local: Tensor = getattr(tensor, "_local_tensor", tensor)
    if type(local) not in _PLAIN:
        wait: Any = getattr(local, "wait", None)  # AsyncCollectiveTensor
        local = local if wait is None else wait()
    return local.detach() if local.requires_grad else local


def clean_name(name: str) -> str:
    """A name as the unwrapped model has it."""
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def index_parameters(model: nn.Module, prefix: str = "") -> ParameterIndex:
    """Find every parameter of `model`, sharded by whatever means.

    Args:
        model: root module, wrapped or not.
        prefix: put before every name, for jobs that train more than one model.
    """
    index = ParameterIndex()
    modules = {id(module): clean_name(name) for name, module in model.named_modules()}
    flat: set[int] = set()
    for module in model.modules():
        handle = getattr(module, "_handle", None) if is_fsdp1(module) else None
        if handle is not None:
            flat |= _add_flat(index, handle, modules, prefix)
    _add_named(index, model, flat, prefix)
    return index


def _join(*parts: str) -> str:
    return ".".join(part for part in parts if part)


def _add_flat(index: ParameterIndex, handle: Any, modules: dict[int, str], prefix: str) -> set[int]:
    """Add one FSDP1 flat parameter; the ids of the parameter objects that belong to it."""
    flat_param = handle.flat_param
    above = _join(prefix, modules.get(id(handle._fully_sharded_module), ""))
    aliases: dict[tuple[int, str], list[str]] = {}
    for shared in flat_param._shared_param_infos:
        name = clean_name(_join(above, shared.module_name, shared.param_name))
        aliases.setdefault((id(shared.prim_module), shared.prim_param_name), []).append(name)
    slots: list[Slot] = []
    originals: list[Slot | None] = []
    wanted = getattr(flat_param, "_params", None) or [flat_param] * len(flat_param._fqns)
    for fqn, shape, info, where, parameter in zip(
        flat_param._fqns,
        flat_param._shapes,
        flat_param._shard_param_infos,
        flat_param._param_infos,
        wanted,
        strict=True,
    ):
        names = [clean_name(_join(above, fqn)), *aliases.get((id(where.module), where.param_name), [])]
        name = min(names)
        if len(names) > 1:
            index.tied.append(tuple(sorted(names)))
        index.shapes[name], index.trainable[name] = tuple(shape), bool(parameter.requires_grad)
        index.sharded[name] = True
        slot = None
        if info.in_shard:
            begin, numel, start = info.offset_in_shard, info.numel_in_shard, info.intra_param_start_idx
            slot = Slot(name, tuple(shape), begin, numel, start)
            slots.append(slot)
        originals.append(slot)
    local = stored_weight(flat_param).numel()
    holder = Holder(flat_param, tuple(slots), local)
    index.holders.append(holder)
    return {id(flat_param)} | _add_flat_owners(index, holder, originals)


def _add_flat_owners(index: ParameterIndex, holder: Holder, originals: list[Slot | None]) -> set[int]:
    """Enter the objects an optimizer may hold: the views of `use_orig_params=True`, or the flat parameter."""
    parameters = getattr(holder.parameter, "_params", None)
    if parameters is None:
        index.by_id[id(holder.parameter)] = holder
        return set()
    for parameter, slot in zip(parameters, originals, strict=True):
        own = () if slot is None else (Slot(slot.name, slot.shape, 0, slot.numel, slot.start),)
        index.by_id[id(parameter)] = Holder(parameter, own, own[0].numel if own else 0)
    return {
        id(parameter)
        for parameter in [*parameters, *(getattr(holder.parameter, "_shared_params", None) or [])]
    }


def _add_named(index: ParameterIndex, model: nn.Module, flat: set[int], prefix: str) -> None:
    """Add everything that is no FSDP1 flat parameter: DTensors and plain parameters, tied ones once."""
    sharded = _sharded_parameters(model)
    names: dict[int, list[str]] = {}
    objects: dict[int, Tensor] = {}
    for above, module in model.named_modules():
        for key, parameter in module._parameters.items():
            parameter = sharded.get((id(module), key), parameter)
            if parameter is None or id(parameter) in flat:
                continue
            names.setdefault(id(parameter), []).append(clean_name(_join(prefix, above, key)))
            objects[id(parameter)] = parameter
    for identity, parameter in objects.items():
        name = min(names[identity])
        if name.endswith("_flat_param"):
            continue
        if len(names[identity]) > 1:
            index.tied.append(tuple(sorted(names[identity])))
        index.shapes[name], index.trainable[name] = tuple(parameter.shape), bool(parameter.requires_grad)
        index.sharded[name] = is_dtensor(parameter)
        slots = _slots(name, parameter)
        if slots is None:
            index.unreadable[name] = f"placements {getattr(parameter, 'placements', '?')}"
            slots = ()
        holder = Holder(parameter, slots, local_part(parameter).numel())
        index.holders.append(holder)
        index.by_id[identity] = holder


def _sharded_parameters(model: nn.Module) -> dict[tuple[int, str], Tensor]:
    """FSDP2's sharded parameter for every (module, name), also while the module shows the gathered one."""
    found: dict[tuple[int, str], Tensor] = {}
    for module in model.modules():
        if not is_fsdp2(module):
            continue
        for each in fsdp2_parameters(module._get_fsdp_state()):  # type: ignore[operator]
            info = each._module_info
            found[(id(info.module), info.param_name)] = each.sharded_param
            for shared, name in zip(info.shared_modules, info.shared_param_names, strict=True):
                found[(id(shared), name)] = each.sharded_param
    return found


def fsdp2_parameters(state: Any) -> list[Any]:
    """The `FSDPParam`s of one FSDP2 unit; torch 2.10 made the single parameter group a list."""
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:
        group = getattr(state, "_fsdp_param_group", None)
        groups = [group] if group is not None else []
    return [each for group in groups for each in group.fsdp_params]


_KNOWN_SLOTS: dict[tuple[int, str], tuple[weakref.ref[Tensor], tuple[Slot, ...] | None]] = {}


def _slots(name: str, parameter: Tensor) -> tuple[Slot, ...] | None:
    """`slots_of_tensor`, remembered: asking a DTensor where it lies takes longer than copying a small one."""
    known = _KNOWN_SLOTS.get((id(parameter), name))
    if known is None or known[0]() is not parameter:
        known = (weakref.ref(parameter), slots_of_tensor(name, parameter))
        _KNOWN_SLOTS[id(parameter), name] = known
    return known[1]


def slots_of_tensor(name: str, tensor: Tensor) -> tuple[Slot, ...] | None:
    """Where a DTensor or plain tensor sits in the full one; `None` when its layout cannot be told."""
    shape = tuple(tensor.shape)
    placements = getattr(tensor, "placements", None)
    if placements is None:
        return (Slot(name, shape, 0, tensor.numel(), 0),) if tensor.numel() else ()
    if any(placement.is_partial() for placement in placements):
        return None
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    mesh: Any = tensor.device_mesh  # type: ignore[attr-defined]
    size, offset = compute_local_shape_and_global_offset(tensor.shape, mesh, placements)
    numel = math.prod(size)
    if numel == 0:
        return ()
    if numel != local_part(tensor).numel():
        return None
    if tuple(size[1:]) == shape[1:]:
        return (Slot(name, shape, 0, numel, offset[0] * math.prod(shape[1:]) if shape else 0),)
    return (Slot(name, shape, 0, numel, None, (tuple(offset), tuple(size))),)


def is_dtensor(value: object) -> bool:
    """Whether `value` is a DTensor, told without importing the class."""
    return isinstance(value, torch.Tensor) and hasattr(value, "_local_tensor")
