"""Which parameter each number of a raw optimizer is: by the model's files, the policy, or a search by sizes.

The files hold sizes per number and rank; an assumption (units, use_orig_params, alignment, sharding group,
parameter groups) is right only if every size on every rank fits. Where several fit and name the parameters
differently, nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from checkpoint_convert.errors import IncompleteError, LayoutError
from checkpoint_convert.flat_param import (
    FlatPiece,
    Sharding,
    UnitLayout,
    lay_out,
    span_on_rank,
    unit_members,
)
from checkpoint_convert.layout import ModelLayout, ParameterSpec, UnitSpec, wrapped_modules
from checkpoint_convert.model import Notice, OptimizerContents, ParamGroup, TensorSource
from checkpoint_convert.optim_state import SavedOptimizer, group_keys, is_source, param_group
from checkpoint_convert.raw_state import (
    Slot,
    check_same_groups,
    first_misfit,
    misfit,
    named_state,
    piece_slot,
    unit_slot,
    whole_slot,
)
from checkpoint_convert.readers.group_orders import orders
from checkpoint_convert.readers.local import LocalModel, cut
from checkpoint_convert.readers.options import ReadOptions
from checkpoint_convert.readers.replicas import same_elements

SEARCHED = "CK105"
"""The FSDP1 policy was found by matching sizes, not given."""
_COMPUTE_ITEMSIZES = (None, 2, 4, 8, 1)
_MAX_CLASSES = 40


@dataclass(frozen=True, slots=True)
class Assumption:
    """One way the optimizer could have come about, and what each number is under it."""

    slots: tuple[Slot, ...]
    replicas: int
    found_by_search: str = ""


def read_raw(
    ranks: Sequence[SavedOptimizer],
    layout: ModelLayout,
    local: LocalModel | None,
    options: ReadOptions,
    memory_order: bool | None,
    where: str,
) -> tuple[OptimizerContents, tuple[Notice, ...]]:
    """A raw optimizer by FQN.

    Args:
        ranks: state dicts in rank order, all ranks.
        local: the flat parameters of the same save, where they are at hand.

    Raises:
        LayoutError: no assumption fits, or several do.
    """
    check_same_groups(ranks, where)
    numbers = [key for group in ranks[0].groups for key in group_keys(group)]
    found, reasons = _fitting(ranks, numbers, layout, local, options)
    if not found:
        raise misfit(where, reasons)
    if len({_outcome(assumption, numbers, ranks) for assumption in found}) > 1:
        raise _several(where, found)
    chosen = found[0]
    world = len(ranks) // chosen.replicas
    replica = ranks[:world]
    _check_replicas(ranks, world, where)

    def cut_out(flat: TensorSource, offset: int, spec: ParameterSpec) -> TensorSource:
        return cut(flat, FlatPiece(spec, offset, (spec.fqn,)), memory_order, where)

    state = named_state(chosen.slots, numbers, replica, cut_out, where)
    groups = _groups(ranks[0], dict(zip(numbers, chosen.slots, strict=True)), where)
    notices: tuple[Notice, ...] = ()
    if chosen.found_by_search:
        text = f"{where}: the FSDP1 policy was found by sizes: {chosen.found_by_search}"
        notices = (Notice(SEARCHED, text),)
    return OptimizerContents(state, groups), notices


def _outcome(assumption: Assumption, numbers: Sequence[object], ranks: Sequence[SavedOptimizer]) -> object:
    """What an assumption makes of the files; parameters without state have only their names."""
    return tuple(
        (slot.members, slot.numels if any(saved.state.get(number) for saved in ranks) else ())
        for slot, number in zip(assumption.slots, numbers, strict=True)
    )


def _groups(saved: SavedOptimizer, slots: dict[object, Slot], where: str) -> list[ParamGroup]:
    names = {number: slot.name for number, slot in slots.items()}
    groups = []
    for group in saved.groups:
        made = param_group(group, names, where)
        members = [name for key in group_keys(group) for name, _, _ in slots[key].members]
        groups.append(replace(made, params=tuple(members)))
    return groups


def _fitting(
    ranks: Sequence[SavedOptimizer],
    numbers: Sequence[object],
    layout: ModelLayout,
    local: LocalModel | None,
    options: ReadOptions,
) -> tuple[list[Assumption], list[str]]:
    """The assumptions that fit, the most trusted kind only; and why the others do not."""
    reasons: list[str] = []
    for kind in _kinds(ranks, layout, local):
        found: list[Assumption] = []
        for slots, replicas, note in kind:
            replica = ranks[: len(ranks) // replicas]
            for ordered in orders(slots, ranks[0], layout, options):
                reason = first_misfit(ordered, numbers, replica)
                if reason is None:
                    found.append(Assumption(tuple(ordered), replicas, note))
                else:
                    reasons.append(reason)
        if found:
            return found, reasons
    return [], reasons


Candidate = tuple[list[Slot], int, str]


def _kinds(
    ranks: Sequence[SavedOptimizer], layout: ModelLayout, local: LocalModel | None
) -> Iterator[Iterator[Candidate]]:
    """Kinds of assumptions, the best founded first."""
    if local is not None:
        yield _from_local(len(ranks), layout, local)
        return
    if layout.units is not None:
        yield _from_units(len(ranks), layout, layout.units, "")
        return
    yield _search(len(ranks), layout, size=1)
    yield _search(len(ranks), layout, size=2)


def _from_local(count: int, layout: ModelLayout, local: LocalModel) -> Iterator[Candidate]:
    if local.pieces:
        slots: list[Slot] = []
        for spec in layout.unique_parameters():
            numels = local.pieces.get(spec.fqn)
            slots.append(piece_slot(spec, numels) if numels else whole_slot(spec, local.world_size))
    else:
        slots = _flat_slots(layout, local.units, local.ignored, local.world_size)
    if count % local.world_size == 0:
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


def _from_units(count: int, layout: ModelLayout, specs: Sequence[UnitSpec], note: str) -> Iterator[Candidate]:
    """Both use_orig_params values, all alignments, all sizes of the sharding group."""
    ignored = _ignored(layout, specs)
    members = unit_members(layout, [unit.prefix for unit in specs], ignored)
    seen = set()
    for replicas in _divisors(count):
        world = count // replicas
        for sharding in _shardings(world, layout.use_orig_params):
            units = {prefix: lay_out(prefix, m, m[0].dtype, sharding) for prefix, m in members.items()}
            if layout.use_orig_params is not True and not sharding.aligned:
                slots = _flat_slots(layout, units, ignored, world)
                if (key := (tuple(slots), replicas)) not in seen:
                    seen.add(key)
                    yield slots, replicas, note
            if layout.use_orig_params is not False:
                slots = _piece_slots(layout, units, world)
                if (key := (tuple(slots), replicas)) not in seen:
                    seen.add(key)
                    yield slots, replicas, note


def _ignored(layout: ModelLayout, units: Sequence[UnitSpec]) -> frozenset[str]:
    """Parameters outside all units, where the layout lists the units' members."""
    if any(unit.members is None for unit in units):
        return frozenset()
    held = {name for unit in units for name in unit.members or ()}
    aliases = layout.aliases()
    return frozenset(
        spec.fqn
        for spec in layout.parameters
        if spec.fqn not in held and aliases.get(spec.fqn, spec.fqn) not in held
    )


def _shardings(world: int, use_orig_params: bool | None) -> Iterator[Sharding]:
    yield Sharding(world, aligned=False)
    if use_orig_params is not False:
        for itemsize in _COMPUTE_ITEMSIZES:
            yield Sharding(world, True, itemsize)


def _piece_slots(layout: ModelLayout, units: Mapping[str, UnitLayout], world: int) -> list[Slot]:
    pieces = {piece.names[0]: (unit, piece) for unit in units.values() for piece in unit.pieces}
    slots = []
    for spec in layout.unique_parameters():
        if spec.fqn not in pieces:
            slots.append(whole_slot(spec, world))
            continue
        unit, piece = pieces[spec.fqn]
        spans = [span_on_rank(piece.offset, piece.stop, unit.shard, rank) for rank in range(world)]
        slots.append(piece_slot(spec, [stop - start for start, stop in spans]))
    return slots


def _search(count: int, layout: ModelLayout, size: int) -> Iterator[Candidate]:
    """Units by sets of `size` module classes (for 1 also: the root alone)."""
    owners = {spec.fqn.rpartition(".")[0] for spec in layout.parameters}
    inside = {path for owner in owners for path in _parents(owner)}
    classes = dict.fromkeys(
        module.classes[0]
        for module in layout.modules
        if module.fqn in inside and module.fqn and module.classes
    )
    sets = (
        [(), *combinations(classes, 1)]
        if size == 1
        else list(combinations(list(classes)[:_MAX_CLASSES], size))
    )
    tried = set()
    for names in sets:
        prefixes = wrapped_modules(layout, names) if names else ()
        if prefixes in tried:
            continue
        tried.add(prefixes)
        note = " and ".join(names) if names else "the root alone"
        yield from _from_units(count, layout, [UnitSpec(prefix) for prefix in ("", *prefixes)], note)


def _parents(path: str) -> list[str]:
    parts = path.split(".")
    return [".".join(parts[:depth]) for depth in range(1, len(parts) + 1)]


def _several(where: str, found: Sequence[Assumption]) -> LayoutError:
    notes = [assumption.found_by_search or "the given units" for assumption in found]
    different = list(dict.fromkeys(notes))
    what = (
        f"wrapping {different[0]} or {different[1]}"
        if len(different) > 1
        else "several orders of its parameters"
    )
    return LayoutError(
        f"{where}: the sizes fit more than one job: {what}",
        hint="Give the FSDP1 policy with --wrap pkg.module:Block, or a layout.json that "
        "capture_layout(model, optimizer) wrote in the old job.",
    )


def _check_replicas(ranks: Sequence[SavedOptimizer], world: int, where: str) -> None:
    for rank in range(world, len(ranks)):
        for key, entry in ranks[rank].state.items():
            first = ranks[rank % world].state.get(key, {})
            for item, value in entry.items():
                other = first.get(item)
                if is_source(value) and not (is_source(other) and same_elements(value, other)):
                    raise IncompleteError(
                        f"{where}: ranks {rank % world} and {rank} should be replicas, but {item} of "
                        f"parameter {key} differs",
                        hint="Are the files of one save?",
                    )
