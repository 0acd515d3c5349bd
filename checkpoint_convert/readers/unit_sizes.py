"""Which layout has flat parameters of the files' sizes: alignment, sharding group, what was ignored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

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
from checkpoint_convert.model import TensorSource, numel
from checkpoint_convert.readers.parts import Part

_AS_BUILT = "Is it the model that was saved, as it was built?"


def fit(
    part: Part,
    layout: ModelLayout,
    flats: Mapping[str, TensorSource],
    ignored_sets: Sequence[frozenset[str]],
    views: bool,
) -> tuple[dict[str, UnitLayout], int, frozenset[str]]:
    """The one layout whose flat parameters have the sizes the files have, over how many ranks it was sharded,
    and what it leaves out."""
    misfit: LayoutError | None = None
    for ignored in ignored_sets:
        try:
            return *_fit_without(part, layout, flats, ignored, views), ignored
        except LayoutError as error:
            misfit = misfit or error
    assert misfit is not None
    raise misfit


def ignored_sets(layout: ModelLayout, ignored: frozenset[str]) -> list[frozenset[str]]:
    """What may have been ignored: the parameters that show it, and then also those of the same modules, whose
    vectors look like pieces of flattened ones."""
    modules = {name.rpartition(".")[0] for name in ignored}
    siblings = frozenset(spec.fqn for spec in layout.parameters if spec.module in modules)
    return [ignored, ignored | siblings] if siblings - ignored else [ignored]


def _fit_without(
    part: Part, layout: ModelLayout, flats: Mapping[str, TensorSource], ignored: frozenset[str], views: bool
) -> tuple[dict[str, UnitLayout], int]:
    members = unit_members(layout, flats, ignored, use_orig_params=views)
    if set(members) != set(flats):
        extra = sorted(set(members) ^ set(flats))
        raise LayoutError(
            f"{part.name}: the flat parameters are those of {_listed(flats)}, the model's parameters belong "
            f"to {_listed(members)}; {extra[0] or 'the root'} is on one side only",
            hint="Is it the model that was saved, in the same configuration?",
        )
    world = part.world_size or 1
    for group in range(world, 0, -1):
        found = _of_group(members, flats, group, world, views) if world % group == 0 else []
        if len(found) > 1:
            raise LayoutError(
                f"{part.name}: the sizes fit several alignments of the parameters",
                hint="Give the per-rank files instead, or a layout.json from capture_layout in the old job.",
            )
        if found:
            return found[0], group
    message, hint = _mismatch(part, members, flats)
    raise LayoutError(message, hint=hint)


def _of_group(
    members: Mapping[str, Sequence[ParameterSpec]],
    flats: Mapping[str, TensorSource],
    group: int,
    world: int,
    views: bool,
) -> list[dict[str, UnitLayout]]:
    """The layouts that fit, sharded over so many ranks; flat parameters saved as plain tensors are there with
    every rank's padding, and once per replica."""
    found: list[dict[str, UnitLayout]] = []
    for sharding in _shardings(group, views):
        units = {
            prefix: lay_out(prefix, specs, flats[prefix].dtype, sharding) for prefix, specs in members.items()
        }
        held = {prefix: numel(flats[prefix].shape) for prefix in units}
        if all(
            held[name] in (one.total, one.shard * world, one.total * world) for name, one in units.items()
        ):
            units = {prefix: _as_held(unit, held[prefix], world) for prefix, unit in units.items()}
            found += [units] if units not in found else []
    return found


def _shardings(world_size: int, views: bool) -> list[Sharding]:
    if not views:
        return [Sharding(world_size, aligned=False)]
    aligned = [Sharding(world_size, True, itemsize) for itemsize in COMPUTE_ITEMSIZES]
    return [*aligned, Sharding(world_size, aligned=False)]


def _as_held(unit: UnitLayout, held: int, world: int) -> UnitLayout:
    """The unit as it was sharded: not at all where every rank's plain tensor is all of it (NO_SHARD)."""
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
        is_alone = (part.world_size or 1) == 1
        return message, _AS_BUILT if is_alone else f"Give the files of one save only. {_AS_BUILT}"
    return f"{part.name}: the flat parameters do not have the sizes of the model's parameters", _AS_BUILT


def _listed(prefixes: Mapping[str, object]) -> str:
    return ", ".join(prefix or "the root" for prefix in sorted(prefixes)[:6])
