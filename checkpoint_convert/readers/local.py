"""LOCAL_STATE_DICT: flat parameters, and how each parameter is cut out of its unit's.

With use_orig_params=False a file holds flat parameters only; with True also a 1-D view per parameter and
rank, whose pieces in rank order are the parameter. Source: `torch/distributed/fsdp/_state_dict_utils.py`
(`_local_pre_state_dict_hook`, `_local_post_state_dict_hook`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from checkpoint_convert.errors import LayoutError
from checkpoint_convert.flat_param import (
    COMPUTE_ITEMSIZES,
    Sharding,
    UnitLayout,
    lay_out,
    shard_numel,
    unit_members,
)
from checkpoint_convert.layout import ModelLayout, ParameterSpec
from checkpoint_convert.model import Notice, TensorSource, numel
from checkpoint_convert.readers.cutting import cut, join_pieces
from checkpoint_convert.readers.names import flat_prefix
from checkpoint_convert.readers.parts import Part
from checkpoint_convert.stored_tensor import StoredTensor
from checkpoint_convert.torch_objects import ShardedTensorOnRank

UNTIED = "CK103"
"""Parameters tied in the model were stored twice by FSDP1 (one copy per unit) and may have drifted apart."""


_AS_BUILT = "Is it the model that was saved, as it was built?"


@dataclass(frozen=True, slots=True, eq=False)
class LocalModel:
    """A model out of flat parameters.

    Attributes:
        tensors: by FQN, tied names included.
        units: the flat parameters' layouts, for the optimizer; empty with use_orig_params=True.
        pieces: with use_orig_params=True, elements of each parameter on each rank, for the optimizer.
        ignored: parameters FSDP1 did not flatten.
        world_size: ranks of the sharding group.
    """

    tensors: Mapping[str, TensorSource]
    aliases: Mapping[str, str]
    units: Mapping[str, UnitLayout]
    pieces: Mapping[str, tuple[int, ...]]
    ignored: frozenset[str]
    notices: tuple[Notice, ...]
    world_size: int


def read_local(
    part: Part, layout: ModelLayout, memory_order: bool | None, ignored: frozenset[str] = frozenset()
) -> LocalModel:
    """Cut the parameters out of a part's flat parameters.

    Args:
        memory_order: how the saver flattened non-contiguous parameters; None: not known.
        ignored: parameters known not to be flattened; those that stand beside are found without it.

    Raises:
        LayoutError: the layout does not fit the files, or more than one way of cutting does.
    """
    whole = part.model or {}
    flats = {prefix: whole[name] for name in whole if (prefix := flat_prefix(name)) is not None}
    plain = {name: value for name, value in whole.items() if flat_prefix(name) is None}
    specs = {spec.fqn: spec for spec in layout.parameters}
    if part.pieced or (part.local and _has_views(part, specs)):
        return _from_views(part, layout, specs, plain, memory_order)
    views = bool(specs) and set(specs) <= set(plain)
    ignored |= frozenset(
        name for name in plain if name in specs and (not views or _is_whole(plain[name], specs[name]))
    )
    units, ignored = _fit(part, layout, flats, _ignored_sets(layout, ignored), views)
    tensors: dict[str, TensorSource] = {}
    for prefix, unit in units.items():
        flat = flats[prefix]
        for piece in unit.pieces:
            source = cut(flat, piece, memory_order, part.name)
            tensors.update(dict.fromkeys(piece.names, source))
    for name, source in plain.items():
        if name not in tensors:
            tensors[name] = source
    return _finish(part, layout, tensors, units, {}, ignored)


def _is_whole(source: TensorSource, spec: ParameterSpec) -> bool:
    return source.shape == spec.shape and len(spec.shape) != 1


def _are_pieces(on_ranks: Sequence[object], spec: ParameterSpec | None, *, pieced: bool) -> bool:
    if spec is None or not (pieced or not spec.numel):  # without elements there is no storage to share
        return False
    views = [isinstance(view, StoredTensor) and view.shape == spec.shape for view in on_ranks]
    return len(views) < 2 or not all(views)


def _has_views(part: Part, specs: Mapping[str, ParameterSpec]) -> bool:
    """Whether parameters stand beside the flat parameters as views of the same storage."""
    return any(_shares_flat(model, name) for model in part.local for name in model if name in specs)


def _shares_flat(model: Mapping[str, object], name: str) -> bool:
    value = model.get(name)
    return isinstance(value, StoredTensor) and id(value.storage) in _flat_storages(model)


def _flat_storages(model: Mapping[str, object]) -> set[int]:
    found = set()
    for name, value in model.items():
        if flat_prefix(name) is None:
            continue
        if isinstance(value, ShardedTensorOnRank):
            found |= {id(tensor.storage) for _, tensor in value.local}
        elif isinstance(value, StoredTensor):
            found.add(id(value.storage))
    return found


def _from_views(
    part: Part,
    layout: ModelLayout,
    specs: Mapping[str, ParameterSpec],
    plain: Mapping[str, TensorSource],
    memory_order: bool | None,
) -> LocalModel:
    storages = [_flat_storages(model) for model in part.local]
    tensors: dict[str, TensorSource] = {}
    pieces: dict[str, tuple[int, ...]] = {}
    ignored = set()
    for name, value in plain.items():
        on_ranks = [model.get(name) for model in part.local]
        shared = any(
            isinstance(view, StoredTensor) and id(view.storage) in known
            for view, known in zip(on_ranks, storages, strict=True)
        ) or _are_pieces(on_ranks, specs.get(name), pieced=part.pieced)
        if not shared:
            tensors[name] = value
            if name in specs:
                ignored.add(name)
            continue
        views = [view for view in on_ranks if isinstance(view, StoredTensor)]
        pieces[name] = tuple(numel(view.shape) for view in views)
        tensors[name] = join_pieces(views, specs.get(name), name, memory_order, part.name)
    _check_complete(layout, tensors, part.name)
    return _finish(part, layout, tensors, {}, pieces, frozenset(ignored))


def _fit(
    part: Part,
    layout: ModelLayout,
    flats: Mapping[str, TensorSource],
    ignored_sets: Sequence[frozenset[str]],
    views: bool,
) -> tuple[dict[str, UnitLayout], frozenset[str]]:
    """The one layout whose flat parameters have the sizes the files have, and what it leaves out."""
    misfit: LayoutError | None = None
    for ignored in ignored_sets:
        try:
            return _fit_without(part, layout, flats, ignored, views), ignored
        except LayoutError as error:
            misfit = misfit or error
    assert misfit is not None
    raise misfit


def _ignored_sets(layout: ModelLayout, ignored: frozenset[str]) -> list[frozenset[str]]:
    """What may have been ignored: the parameters that show it, and then also those of the same modules, whose
    vectors look like pieces of flattened ones."""
    modules = {name.rpartition(".")[0] for name in ignored}
    siblings = frozenset(spec.fqn for spec in layout.parameters if spec.module in modules)
    return [ignored, ignored | siblings] if siblings - ignored else [ignored]


def _fit_without(
    part: Part, layout: ModelLayout, flats: Mapping[str, TensorSource], ignored: frozenset[str], views: bool
) -> dict[str, UnitLayout]:
    members = unit_members(layout, flats, ignored, use_orig_params=views)
    if set(members) != set(flats):
        extra = sorted(set(members) ^ set(flats))
        raise LayoutError(
            f"{part.name}: the flat parameters are those of {_listed(flats)}, the model's parameters belong "
            f"to {_listed(members)}; {extra[0] or 'the root'} is on one side only",
            hint="Is it the model that was saved, in the same configuration?",
        )
    found: list[dict[str, UnitLayout]] = []
    for sharding in _shardings(part.world_size or 1, views):
        units = {
            prefix: lay_out(prefix, specs, flats[prefix].dtype, sharding) for prefix, specs in members.items()
        }
        if all(_fits(unit, flats[prefix], sharding) for prefix, unit in units.items()):
            units = {
                prefix: _as_held(unit, flats[prefix], sharding.world_size) for prefix, unit in units.items()
            }
            found += [units] if units not in found else []
    if not found:
        message, hint = _mismatch(part, members, flats)
        raise LayoutError(message, hint=hint)
    if len(found) > 1:
        raise LayoutError(
            f"{part.name}: the sizes fit several alignments of the parameters",
            hint="Give the per-rank files instead, or a layout.json from capture_layout in the old job.",
        )
    return found[0]


def _shardings(world_size: int, views: bool) -> list[Sharding]:
    if not views:
        return [Sharding(world_size, aligned=False)]
    aligned = [Sharding(world_size, True, itemsize) for itemsize in COMPUTE_ITEMSIZES]
    return [*aligned, Sharding(world_size, aligned=False)]


def _fits(unit: UnitLayout, flat: TensorSource, sharding: Sharding) -> bool:
    held = numel(flat.shape)
    if held == unit.total:
        return True
    # Saved as plain tensors, with every rank's padding, and once per replica.
    world = sharding.world_size
    return any(
        held == shard_numel(unit.total, part) * world for part in range(1, world + 1) if world % part == 0
    )


def _as_held(unit: UnitLayout, flat: TensorSource, world: int) -> UnitLayout:
    """The unit as it was sharded: not at all where every rank's plain tensor is all of it (NO_SHARD)."""
    held = numel(flat.shape)
    is_whole = world > 1 and held == unit.total * world
    return replace(unit, shard=unit.total) if is_whole and held != unit.shard * world else unit


def _mismatch(
    part: Part, members: Mapping[str, Sequence[ParameterSpec]], flats: Mapping[str, TensorSource]
) -> tuple[str, str]:
    """What does not fit, and what may be the reason."""
    for prefix, specs in members.items():
        unit = lay_out(prefix, specs, specs[0].dtype, Sharding(part.world_size or 1, aligned=False))
        held = numel(flats[prefix].shape)
        if held == unit.total:
            continue
        message = (
            f"{part.name}: the flat parameter of {prefix or 'the root'} has {held} elements, the model's "
            f"parameters there {unit.total} ({specs[0].fqn} to {specs[-1].fqn})"
        )
        ranks = round(unit.total / held) if held else 0
        if ranks > 1 and held == shard_numel(unit.total, ranks):
            return message, f"That is a rank's share of {ranks}: give the files of all ranks together."
        if held > unit.total and (part.world_size or 1) > 1:
            return message, "Is a rank's file there twice, or one of another save?"
        return message, _AS_BUILT
    return f"{part.name}: the flat parameters do not have the sizes of the model's parameters", _AS_BUILT


def _listed(prefixes: Mapping[str, object]) -> str:
    return ", ".join(prefix or "the root" for prefix in sorted(prefixes)[:6])


def _check_complete(layout: ModelLayout, tensors: Mapping[str, TensorSource], where: str) -> None:
    missing = [spec.fqn for spec in layout.unique_parameters() if spec.fqn not in tensors]
    if missing:
        raise LayoutError(
            f"{where}: holds no {missing[0]}, which the model has",
            hint="Is it the model that was saved, in the same configuration?",
        )


def _finish(
    part: Part,
    layout: ModelLayout,
    tensors: Mapping[str, TensorSource],
    units: Mapping[str, UnitLayout],
    pieces: Mapping[str, tuple[int, ...]],
    ignored: frozenset[str],
) -> LocalModel:
    """Order the model as it would name its own state, tie what is tied, say what FSDP1 untied."""
    in_unit = {
        name: piece.names[0] for unit in units.values() for piece in unit.pieces for name in piece.names
    }
    aliases, drifted = {}, []
    tensors = dict(tensors)
    for name, first in layout.aliases().items():
        if units and in_unit.get(name) != in_unit.get(first):
            drifted.append(f"{name} and {first}")
        elif first in tensors:
            tensors[name] = tensors[first]
            aliases[name] = first
    order = {spec.fqn: number for number, spec in enumerate(layout.parameters)}
    names = sorted(tensors, key=lambda name: order.get(name, len(order)))
    notices = [
        Notice(UNTIED, f"{pair} are tied in the model, but FSDP1 kept a copy in each unit; both are kept")
        for pair in drifted
    ]
    ordered = {name: tensors[name] for name in names}
    return LocalModel(ordered, aliases, units, pieces, ignored, tuple(notices), part.world_size or 1)
