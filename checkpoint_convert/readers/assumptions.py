"""Ways a raw optimizer could have come about: units, use_orig_params, alignment, sharding group.

Each is a row of slots, one per parameter as the optimizer saw it; sizes decide which are possible
(`raw_optim`). The best founded come first: the flat parameters of the same save, the given policy, a search.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, combinations

from checkpoint_convert.flat_param import (
    COMPUTE_ITEMSIZES,
    Sharding,
    UnitLayout,
    lay_out,
    span_on_rank,
    unit_members,
)
from checkpoint_convert.layout import ModelLayout, ParameterSpec, UnitSpec, wrapped_modules
from checkpoint_convert.optim_state import SavedOptimizer
from checkpoint_convert.raw_state import Slot, piece_slot, unit_slot, whole_slot
from checkpoint_convert.readers.ignored import below, ignorable
from checkpoint_convert.readers.local import LocalModel
from checkpoint_convert.readers.whole_units import (
    flat_sizes,
    members_with,
    partly_whole,
    unsharded_prefixes,
    whole_parameters,
)

_MAX_CLASSES = {1: 400, 2: 40, 3: 14}
"""Module classes of which sets of each size are tried."""
_SHOWN = 4

Candidate = tuple[list[Slot], int, str]


def kinds(
    ranks: Sequence[SavedOptimizer], layout: ModelLayout, local: LocalModel | None, ignored: frozenset[str]
) -> Iterator[Iterator[Candidate]]:
    """Kinds of assumptions, the best founded first."""
    count = len(ranks)
    if local is not None:
        yield _from_local(count, layout, local)
        if not local.pieces and not layout.whole_units():
            yield _partly_whole_beside(count, layout, local, flat_sizes(ranks))
        return
    if layout.units is not None:
        yield _from_units(count, layout, layout.units, ignored, "")
        asked = any(spec.shape for spec in layout.parameters if spec.fqn in ignored)
        if not asked and all(unit.members is None for unit in layout.units):
            yield _one_ignored(count, layout, layout.units, ignored)
            prefixes = [unit.prefix for unit in layout.units]
            yield _partly_whole(ranks, layout, [("", prefixes)], ignored)
            yield _partly_whole_ignoring(ranks, layout, prefixes, ignored)
        return
    for size in (1, 2, 3):
        yield _search(count, layout, ignored, size)
    for size in (1, 2):
        yield _partly_whole(ranks, layout, _class_units(layout, size), ignored)


def _one_ignored(
    count: int, layout: ModelLayout, units: Sequence[UnitSpec], scalars: frozenset[str]
) -> Iterator[Candidate]:
    """The given units, with one module that FSDP1 may have been told to ignore."""
    for path, inner in ignorable(layout, [unit.prefix for unit in units]):
        yield from _from_units(count, layout, units, inner | scalars, f"ignoring {path}")


def _from_local(count: int, layout: ModelLayout, local: LocalModel) -> Iterator[Candidate]:
    if local.pieces:
        pieces: list[Slot] = []
        for spec in layout.unique_parameters():
            numels = local.pieces.get(spec.fqn)
            pieces.append(piece_slot(spec, numels) if numels else whole_slot(spec, local.world_size))
        found = _orders_in_modules(pieces)
    else:
        # Units that were not sharded stand as plain parameters among the flat ones, as ignored ones do.
        whole = unit_members(layout, [unit.prefix for unit in layout.units or ()])
        unsharded = Sharding(local.world_size, aligned=False, sharded=False)
        units = dict(local.units)
        for prefix in layout.whole_units() & whole.keys():
            units[prefix] = lay_out(prefix, whole[prefix], whole[prefix][0].dtype, unsharded)
        held = {piece.spec.fqn for unit in units.values() for piece in unit.pieces}
        flat = _flat_slots(layout, units, local.ignored - held, local.world_size)
        # With use_orig_params=True the parameters' views may have been saved as tensors of their own.
        found = chain([flat], _orders_in_modules(_piece_slots(layout, units, local.world_size)))
    if count % local.world_size == 0:
        for slots in found:
            yield slots, count // local.world_size, ""


def _divisors(count: int) -> list[int]:
    return [number for number in range(1, count + 1) if count % number == 0]


def _flat_slots(
    layout: ModelLayout,
    units: Mapping[str, UnitLayout],
    ignored: frozenset[str],
    world: int,
) -> list[Slot]:
    """Flat parameters in the order of the wrapped model's `named_parameters()`: module by module, first the
    parameters FSDP1 left alone, then the module's own flat parameter."""
    alone: dict[str, list[ParameterSpec]] = {}
    for spec in layout.unique_parameters():
        if spec.fqn in ignored:
            alone.setdefault(spec.module, []).append(spec)
    slots = []
    for path in dict.fromkeys(module.fqn for module in layout.modules):
        slots += [whole_slot(spec, world) for spec in alone.get(path, ())]
        if path in units:
            slots.append(unit_slot(units[path], world))
    return slots


def _from_units(
    count: int, layout: ModelLayout, specs: Sequence[UnitSpec], ignored: frozenset[str], note: str
) -> Iterator[Candidate]:
    """Both use_orig_params values, all alignments, all sizes of the sharding group."""
    prefixes = [unit.prefix for unit in specs]
    whole = layout.whole_units()
    both = {orig: unit_members(layout, prefixes, ignored, use_orig_params=orig) for orig in (False, True)}
    seen = set()
    for replicas in _divisors(count):
        world = count // replicas
        for orig, sharding in _shardings(world, layout.use_orig_params):
            units = {
                prefix: lay_out(prefix, m, m[0].dtype, replace(sharding, sharded=prefix not in whole))
                for prefix, m in both[orig].items()
            }
            flat = [] if orig else [_flat_slots(layout, units, ignored, world)]
            for slots in flat or _orders_in_modules(_piece_slots(layout, units, world)):
                if (key := (tuple(slots), replicas)) not in seen:
                    seen.add(key)
                    yield slots, replicas, note


def _shardings(world: int, use_orig_params: bool | None) -> Iterator[tuple[bool, Sharding]]:
    """`use_orig_params` and what follows from it; None: both."""
    if use_orig_params is not True:
        yield False, Sharding(world, aligned=False)
    if use_orig_params is not False:
        yield True, Sharding(world, aligned=False)
        for itemsize in COMPUTE_ITEMSIZES:
            yield True, Sharding(world, True, itemsize)


def _orders_in_modules(slots: list[Slot]) -> Iterator[list[Slot]]:
    """The parameters in the model's order; and as FSDP1 leaves them, which enters those that it flattens into
    their module anew, behind those that it was told to ignore (`_flat_param.py`, `_setattr_param`)."""
    yield slots
    by_module: dict[str, list[Slot]] = {}
    for slot in slots:
        by_module.setdefault(slot.members[0][2].module, []).append(slot)
    anew = [slot for own in by_module.values() for slot in sorted(own, key=lambda slot: not slot.whole)]
    if anew != slots:
        yield anew


def _piece_slots(layout: ModelLayout, units: Mapping[str, UnitLayout], world: int) -> list[Slot]:
    pieces = {piece.names[0]: (unit, piece) for unit in units.values() for piece in unit.pieces}
    slots = []
    for spec in layout.unique_parameters():
        if spec.fqn not in pieces or world == 1:  # which FSDP1 makes NO_SHARD: parameters keep their shapes
            slots.append(whole_slot(spec, world))
            continue
        unit, piece = pieces[spec.fqn]
        if unit.prefix in layout.whole_units():
            slots.append(whole_slot(spec, world))
            continue
        spans = [span_on_rank(piece.offset, piece.stop, unit.shard, rank) for rank in range(world)]
        slots.append(piece_slot(spec, [stop - start for start, stop in spans]))
    return slots


def _search(count: int, layout: ModelLayout, ignored: frozenset[str], size: int) -> Iterator[Candidate]:
    """Units by sets of `size` module classes (for 1 also: the root alone)."""
    for note, prefixes in _class_units(layout, size):
        yield from _from_units(count, layout, [UnitSpec(prefix) for prefix in prefixes], ignored, note)


def _class_units(layout: ModelLayout, size: int) -> Iterator[tuple[str, list[str]]]:
    """The units that sets of `size` module classes make, each once, and the classes."""
    owners = {spec.fqn.rpartition(".")[0] for spec in layout.parameters}
    inside = {path for owner in owners for path in _parents(owner)}
    classes = dict.fromkeys(
        module.classes[0]
        for module in layout.modules
        if module.fqn in inside and module.fqn and module.classes
    )
    sets = [*([()] if size == 1 else []), *combinations(list(classes)[: _MAX_CLASSES[size]], size)]
    tried = set()
    for names in sets:
        prefixes = wrapped_modules(layout, names) if names else ()
        if prefixes not in tried:
            tried.add(prefixes)
            yield " and ".join(names) if names else "the root alone", ["", *prefixes]


def _partly_whole(
    ranks: Sequence[SavedOptimizer],
    layout: ModelLayout,
    policies: Iterable[tuple[str, Sequence[str]]],
    ignored: frozenset[str],
) -> Iterator[Candidate]:
    """The units of policies, of which some may not have been sharded, and units beside them that were not."""
    count, sizes = len(ranks), flat_sizes(ranks)
    whole = whole_parameters(layout, ranks)
    for note, prefixes in policies:
        if layout.use_orig_params is not False and whole - ignored:
            specs = [UnitSpec(prefix) for prefix in prefixes]
            of_pieces = replace(layout, use_orig_params=True)
            yield from _from_units(count, of_pieces, specs, ignored | whole, _unsharded(note, whole))
        if layout.use_orig_params is True:
            continue
        for members, extra in members_with(layout, prefixes, ignored, sizes):
            for replicas in _divisors(count):
                units = partly_whole(members, extra, sizes, count // replicas)
                if units is not None:
                    slots = _flat_slots(layout, units, ignored, count // replicas)
                    yield slots, replicas, _unsharded(note, _unsharded_units(units))


def _partly_whole_ignoring(
    ranks: Sequence[SavedOptimizer], layout: ModelLayout, prefixes: Sequence[str], ignored: frozenset[str]
) -> Iterator[Candidate]:
    for path, inner in ignorable(layout, prefixes):
        yield from _partly_whole(ranks, layout, [(f"ignoring {path}", prefixes)], ignored | inner)


def _partly_whole_beside(
    count: int, layout: ModelLayout, local: LocalModel, sizes: frozenset[int]
) -> Iterator[Candidate]:
    """Units that were not sharded, among the parameters that stand plain beside the flat ones."""
    for extra in unsharded_prefixes(layout, local.ignored, sizes):
        members = unit_members(layout, [*local.units, *extra], frozenset(_outside_of(layout, local, extra)))
        whole = Sharding(local.world_size, aligned=False, sharded=False)
        units = dict(local.units)
        units |= {
            prefix: lay_out(prefix, members[prefix], members[prefix][0].dtype, whole) for prefix in extra
        }
        held = {piece.spec.fqn for unit in units.values() for piece in unit.pieces}
        if count % local.world_size == 0:
            slots = _flat_slots(layout, units, local.ignored - held, local.world_size)
            yield slots, count // local.world_size, _unsharded("", extra)


def _outside_of(layout: ModelLayout, local: LocalModel, prefixes: Sequence[str]) -> set[str]:
    return set(local.ignored) - set(below(layout, prefixes))


def _unsharded_units(units: Mapping[str, UnitLayout]) -> list[str]:
    return [prefix for prefix, unit in units.items() if unit.shard == unit.total]


def _unsharded(note: str, names: Iterable[str]) -> str:
    listed = sorted(names)
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return f"{note}{', ' if note else ''}{', '.join(listed[:_SHOWN])}{more} not sharded"


def _parents(path: str) -> list[str]:
    parts = path.split(".")
    return [".".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
