"""Which parameter each number of a raw optimizer is: by the model's files, the policy, or a search by sizes.

The files hold sizes per number and rank; an assumption (units, use_orig_params, alignment, sharding group,
parameter groups) is right only if every size on every rank fits. Where several fit and name the parameters
differently, nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from checkpoint_convert.errors import IncompleteError, LayoutError
from checkpoint_convert.flat_param import FlatPiece
from checkpoint_convert.layout import ModelLayout, ParameterSpec
from checkpoint_convert.model import Notice, OptimizerContents, ParamGroup, TensorSource, Value, numel
from checkpoint_convert.optim_state import SavedOptimizer, group_keys, listed_keys, param_group
from checkpoint_convert.raw_state import (
    Misfit,
    Slot,
    check_same_groups,
    first_misfit,
    misfit,
    named_state,
)
from checkpoint_convert.readers.assumptions import kinds
from checkpoint_convert.readers.cutting import cut
from checkpoint_convert.readers.group_orders import interchangeable, orders, sizes_of
from checkpoint_convert.readers.ignored import ignored_of
from checkpoint_convert.readers.local import LocalModel
from checkpoint_convert.readers.options import ReadOptions
from checkpoint_convert.readers.rank_order import by_name, optimizer_proves
from checkpoint_convert.same_values import same_elements
from checkpoint_convert.values import is_tensor

SEARCHED = "CK104"
"""The FSDP1 policy was found by matching sizes, not given."""

_GROUPS_HINT = (
    "Give the groups as the old job gave them to its optimizer with --param-groups, or a layout.json that "
    "capture_layout(model, optimizer) wrote in the old job."
)


@dataclass(frozen=True, slots=True)
class Assumption:
    """One way the optimizer could have come about, and what each number is under it."""

    slots: tuple[Slot, ...]
    replicas: int
    found_by_search: str = ""
    order_is_founded: bool = True


def read_raw(
    ranks: Sequence[SavedOptimizer],
    layout: ModelLayout,
    local: LocalModel | None,
    options: ReadOptions,
    memory_order: bool | None,
    where: str,
    unnamed: Sequence[tuple[str, int | None]] = (),
) -> tuple[OptimizerContents, tuple[Notice, ...]]:
    """A raw optimizer by FQN.

    Args:
        ranks: state dicts in rank order, all ranks.
        local: the flat parameters of the same save, where they are at hand.
        unnamed: the files, where nothing in them says which rank they are of.

    Raises:
        LayoutError: no assumption fits, or several do.
        IncompleteError: a rank's file is missing, or the files are not in order.
    """
    check_same_groups(ranks, where)
    _check_world(len(ranks), layout, where)
    numbers = listed_keys(ranks[0])
    found, misfits = _fitting(ranks, numbers, layout, local, options)
    if not found:
        raise misfit(where, misfits, local_at_hand=local is not None, is_alone=_is_share(ranks, layout))
    if len({_outcome(assumption, numbers, ranks) for assumption in found}) > 1:
        raise _several(where, found)
    chosen = found[0]
    if not any(assumption.order_is_founded for assumption in found):
        _refuse_other_orders(where, chosen, ranks)
    world = len(ranks) // chosen.replicas
    replica = ranks[:world]
    _check_replicas(ranks, world, where)

    def cut_out(flat: TensorSource, offset: int, spec: ParameterSpec) -> TensorSource:
        return cut(flat, FlatPiece(spec, offset, (spec.fqn,)), memory_order, where)

    proven = optimizer_proves(chosen.slots, numbers, replica, where)
    state = named_state(chosen.slots, numbers, replica, cut_out, where)
    groups = _groups(ranks[0], dict(zip(numbers, chosen.slots, strict=True)), where)
    notices = []
    if chosen.found_by_search and not all(slot.is_alone and world == 1 for slot in chosen.slots):
        text = f"{where}: the FSDP1 policy was found by sizes: {chosen.found_by_search}"
        notices.append(Notice(SEARCHED, text))
    if unnamed and not proven:
        notices.append(by_name(unnamed, where))
    return OptimizerContents(state, groups), tuple(notices)


def _check_world(count: int, layout: ModelLayout, where: str) -> None:
    """There are files of as many ranks as the captured layout was sharded over, or of several replicas.

    Raises:
        IncompleteError: there are not.
    """
    sharded = layout.units is not None and all(unit.sharded for unit in layout.units)
    if sharded and layout.world_size and count % layout.world_size:
        said = layout.origin or "the layout"
        raise IncompleteError(
            f"{where}: {count} file{'s' * (count > 1)} of an optimizer that, by {said}, was sharded over "
            f"{layout.world_size} ranks",
            hint="Give the files of all ranks: the directory, or a quoted glob. If the others' were never "
            "saved, --only model converts the model alone.",
        )


def _is_share(ranks: Sequence[SavedOptimizer], layout: ModelLayout) -> bool:
    """Whether that is one file with less state than the model has elements."""
    if len(ranks) > 1:
        return False
    held = 0
    for entry in ranks[0].state.values():
        held += max((numel(value.shape) for value in entry.values() if is_tensor(value)), default=0)
    return 0 < held < sum(spec.numel for spec in layout.unique_parameters() if spec.requires_grad)


def _outcome(assumption: Assumption, numbers: Sequence[object], ranks: Sequence[SavedOptimizer]) -> object:
    """What an assumption makes of the files; of what has no state only the names in each group count."""
    slots = dict(zip(numbers, assumption.slots, strict=True))
    with_state = {number for number in numbers if any(saved.state.get(number) for saved in ranks)}
    without = [
        frozenset(
            name
            for number in group_keys(group)
            if number not in with_state
            for name, _, _ in slots[number].members
        )
        for group in ranks[0].groups
    ]
    stated = [
        (number, slots[number].members, slots[number].numels) for number in numbers if number in with_state
    ]
    return tuple(stated), tuple(without)


def _groups(saved: SavedOptimizer, slots: dict[object, Slot], where: str) -> list[ParamGroup]:
    names = {number: slot.name for number, slot in slots.items()}
    groups = []
    for group in saved.groups:
        made = param_group(group, names, where)
        members = [name for key in group_keys(group) for name, _, _ in slots[key].members]
        named: Mapping[str, Value] = {"param_names": members} if "param_names" in made.options else {}
        groups.append(replace(made, params=tuple(members), options={**made.options, **named}))
    return groups


def _fitting(
    ranks: Sequence[SavedOptimizer],
    numbers: Sequence[object],
    layout: ModelLayout,
    local: LocalModel | None,
    options: ReadOptions,
) -> tuple[list[Assumption], list[Misfit]]:
    """The assumptions that fit, the most trusted kind only; and why the others do not."""
    misfits: list[Misfit] = []
    sizes = sizes_of(ranks, numbers)
    for kind in kinds(ranks, layout, local, ignored_of(layout, options)):
        found: list[Assumption] = []
        for slots, replicas, note in kind:
            for ordered in orders(slots, ranks[0], sizes, layout, options):
                unfit = _misfit_of_replicas(ordered.slots, numbers, ranks, replicas)
                if unfit is None:
                    found.append(Assumption(ordered.slots, replicas, note, ordered.founded))
                else:
                    misfits.append(unfit)
        if found:
            return found, misfits
    return [], misfits


def _misfit_of_replicas(
    slots: Sequence[Slot], numbers: Sequence[object], ranks: Sequence[SavedOptimizer], replicas: int
) -> Misfit | None:
    """Hold every replica against the slots: each must fit, and have state of the same parameters."""
    world = len(ranks) // replicas
    for start in range(0, len(ranks), world):
        unfit = first_misfit(slots, numbers, ranks[start : start + world])
        if unfit is not None:
            return unfit
    for at, number in enumerate(numbers):
        for rank in range(world, len(ranks)):
            first = rank % world
            if bool(ranks[rank].state.get(number)) != bool(ranks[first].state.get(number)):
                return Misfit(at, f"only one of ranks {first} and {rank} has state of parameter {number}")
    return None


def _several(where: str, found: Sequence[Assumption]) -> LayoutError:
    notes = [assumption.found_by_search or "the given units" for assumption in found]
    different = list(dict.fromkeys(notes))
    if len(different) == 1:
        return LayoutError(
            f"{where}: the sizes fit more than one job: several orders of its parameters", hint=_GROUPS_HINT
        )
    return LayoutError(
        f"{where}: the sizes fit more than one job: wrapping {different[0]} or {different[1]}",
        hint="Give the FSDP1 policy with --wrap pkg.module:Block, or a layout.json that "
        "capture_layout(model, optimizer) wrote in the old job.",
    )


def _refuse_other_orders(where: str, chosen: Assumption, ranks: Sequence[SavedOptimizer]) -> None:
    """Sizes alone speak for the order: it must be the only one they allow.

    Raises:
        LayoutError: parameters of two groups could change places.
    """
    pair = interchangeable(chosen.slots, ranks[: len(ranks) // chosen.replicas])
    if pair is not None:
        raise LayoutError(
            f"{where}: nothing says which parameters are in which of the {len(ranks[0].groups)} parameter "
            f"groups: {pair[0].name} and {pair[1].name} are of one size and could change places",
            hint=_GROUPS_HINT,
        )


def _check_replicas(ranks: Sequence[SavedOptimizer], world: int, where: str) -> None:
    for rank in range(world, len(ranks)):
        for key, entry in ranks[rank].state.items():
            first = ranks[rank % world].state.get(key, {})
            for item, value in entry.items():
                other = first.get(item)
                if is_tensor(value) and not (is_tensor(other) and same_elements(value, other)):
                    raise IncompleteError(
                        f"{where}: ranks {rank % world} and {rank} should be replicas, but {item} of "
                        f"parameter {key} differs",
                        hint="Are the files of one save?",
                    )
