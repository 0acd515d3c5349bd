"""Optimizer state over flat parameters, by parameter: `optimizer.state_dict()` as each rank saved it.

Source: `torch/optim/optimizer.py` (`state_dict` numbers parameters group by group), FSDP1's
`named_parameters()` of the wrapped model, which is the order optimizers are given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from checkpoint_convert.errors import IncompleteError, LayoutError, UnsupportedError
from checkpoint_convert.flat_param import UnitLayout
from checkpoint_convert.layout import ParameterSpec
from checkpoint_convert.model import TensorSource, Value, numel
from checkpoint_convert.optim_state import (
    SavedOptimizer,
    group_keys,
    has_shape,
    number_of,
    refuse_eight_bit,
    state_value,
)
from checkpoint_convert.plain_values import walk
from checkpoint_convert.same_values import differing_hint, same_value
from checkpoint_convert.tensor_sources import ConcatTensor
from checkpoint_convert.values import holds_tensor, is_tensor

Cut = Callable[[TensorSource, int, ParameterSpec], TensorSource]
"""Cuts a parameter out of flat elements: the flat tensor, the offset in it, the parameter."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One parameter as the optimizer saw it.

    Attributes:
        name: for messages.
        numels: elements it had on each rank of the sharding group.
        members: name, offset in the joined ranks, and spec of every original parameter in it.
        whole: it was not sharded: every rank has all of it, in its own shape.
    """

    name: str
    numels: tuple[int, ...]
    members: tuple[tuple[str, int, ParameterSpec], ...]
    whole: bool = False

    @property
    def is_alone(self) -> bool:
        """Whether it is of one parameter and nothing else, so that no unit matters to it."""
        return len(self.members) == 1 and self.members[0][2].numel == sum(self.numels)


def unit_slot(unit: UnitLayout, world_size: int) -> Slot:
    """A flat parameter (use_orig_params=False): each rank has its shard, padding included."""
    members = tuple((piece.names[0], piece.offset, piece.spec) for piece in unit.pieces)
    return Slot(f"{unit.prefix or 'root'}._flat_param", (unit.shard,) * world_size, members)


def piece_slot(spec: ParameterSpec, numels: Sequence[int]) -> Slot:
    """A parameter in pieces (use_orig_params=True): each rank has what of it lies in its shard."""
    return Slot(spec.fqn, tuple(numels), ((spec.fqn, 0, spec),))


def whole_slot(spec: ParameterSpec, world_size: int) -> Slot:
    """A parameter FSDP1 did not shard."""
    return Slot(spec.fqn, (spec.numel,) * world_size, ((spec.fqn, 0, spec),), whole=True)


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why slots are not what the optimizer numbered.

    Attributes:
        fitting: parameters that fit before the first that does not; negative where their number does not.
    """

    fitting: int
    reason: str


def first_misfit(
    slots: Sequence[Slot], numbers: Sequence[object], ranks: Sequence[SavedOptimizer]
) -> Misfit | None:
    """Hold every number's state on every rank against the slot it would be; None where all fit.

    Args:
        slots: in the order of `numbers`.
        ranks: one per rank of one replica.
    """
    if len(slots) != len(numbers):
        reason = f"the optimizer has {len(numbers)} parameters, the model {len(slots)}"
        return Misfit(-abs(len(slots) - len(numbers)), reason)
    for at, (slot, number) in enumerate(zip(slots, numbers, strict=True)):
        present = [number in saved.state and bool(saved.state[number]) for saved in ranks]
        needed = [bool(count) for count in slot.numels]
        if any(present) and any(need and not here for need, here in zip(needed, present, strict=True)):
            rank = next(r for r, (n, p) in enumerate(zip(needed, present, strict=True)) if n and not p)
            lacking = f"where {slot.name} has {slot.numels[rank]} elements"
            return Misfit(at, f"parameter {number} has no state on rank {rank}, {lacking}")
        for rank, saved in enumerate(ranks):
            if (unfit := _misfit_on_rank(at, slot, number, saved, rank)) is not None:
                return unfit
    return None


def _misfit_on_rank(at: int, slot: Slot, number: object, saved: SavedOptimizer, rank: int) -> Misfit | None:
    shapes = element_shapes(saved.state.get(number, {}))
    if not shapes:
        return None
    if slot.whole:  # a flat parameter has as many elements, in one dimension
        fits = has_shape(saved.state.get(number, {}), slot.members[0][2].shape)
    else:
        fits = (slot.numels[rank],) in shapes
    if fits:
        return None
    held = max(shapes, key=numel)
    if slot.whole and numel(held) == slot.numels[rank]:
        reason = f"has size {held}, {slot.name} has {slot.members[0][2].shape}"
    else:
        reason = f"has {numel(held)} elements, {slot.name} has {slot.numels[rank]}"
    return Misfit(at, f"the state of parameter {number} on rank {rank} {reason} there")


def element_shapes(entry: Mapping[str, object]) -> set[tuple[int, ...]]:
    """Shapes of the state's tensors, those inside of lists and dictionaries too; 0-dim ones (and `step`) are
    about the whole parameter."""
    return {
        value.shape
        for path, value in walk(entry)
        if is_tensor(value) and value.shape != () and not (path == ("step",) and numel(value.shape) == 1)
    }


def named_state(
    slots: Sequence[Slot], numbers: Sequence[object], ranks: Sequence[SavedOptimizer], cut: Cut, where: str
) -> dict[str, dict[str, Value]]:
    """State by FQN and state name; parameters without state have none.

    Raises:
        IncompleteError: a scalar differs between ranks.
        UnsupportedError: a state that does not follow the parameter's elements, by name.
    """
    state: dict[str, dict[str, Value]] = {}
    for slot, number in zip(slots, numbers, strict=True):
        entries = [saved.state.get(number, {}) for saved in ranks]
        for item in dict.fromkeys(item for entry in entries for item in entry):
            for name, value in _one_state(slot, item, entries, cut, where):
                state.setdefault(name, {})[item] = value
    return state


def _one_state(
    slot: Slot, item: str, entries: Sequence[Mapping[str, object]], cut: Cut, where: str
) -> list[tuple[str, Value]]:
    label = f"{where}: optimizer state {slot.name}.{item}"
    values = [entry.get(item) for entry in entries]
    given = next((value for value in values if value is not None), None)
    refuse_eight_bit(given, label, item)
    if not is_tensor(given) or given.shape == () or (item == "step" and numel(given.shape) == 1):
        given = _common(slot, item, entries, label)
        return [(name, state_value(given, label, item)) for name, _, _ in slot.members]
    if slot.whole:
        return [(name, cast("Value", given)) for name, _, _ in slot.members]
    flat = _joined(slot, values, label)
    return [(name, cast("Value", cut(flat, offset, spec))) for name, offset, spec in slot.members]


def _joined(slot: Slot, values: Sequence[object], label: str) -> TensorSource:
    parts = []
    for rank, (value, expected) in enumerate(zip(values, slot.numels, strict=True)):
        held = numel(value.shape) if is_tensor(value) else 0
        if held != expected:
            raise UnsupportedError(
                f"{label} has {held} elements on rank {rank}, its parameter {expected}: it does not "
                "follow the parameter's elements",
                hint="Convert the model alone (--only model), or leave this state out.",
            )
        if is_tensor(value) and held:
            parts.append(value)
    if any(part.dtype is not parts[0].dtype for part in parts):
        raise IncompleteError(
            f"{label} has different dtypes on different ranks", hint="Give the files of one save only."
        )
    return ConcatTensor(parts, parts[0].dtype, (sum(slot.numels),))


def _common(slot: Slot, item: str, entries: Sequence[Mapping[str, object]], label: str) -> object:
    """What a state that is about the whole parameter is on all ranks.

    Some optimizers (Adagrad) make state when they are built, also where a rank holds no element of the
    parameter. FSDP1 gives no gradient there, and so it stays as it was made: such ranks have no say.

    Raises:
        IncompleteError: it is not the same on all ranks.
        UnsupportedError: it holds shards of its own, of which nothing says how they belong together.
    """
    having = [rank for rank, entry in enumerate(entries) if item in entry]
    held = [rank for rank in having if slot.numels[rank]] or having
    first = entries[held[0]][item]
    if not slot.whole and not is_tensor(first) and holds_tensor(cast("Value", first)):
        raise UnsupportedError(
            f"{label} is a {type(first).__name__} with tensors inside, whose parts on the ranks stand alone",
            hint="Convert the model alone (--only model), or leave this state out.",
        )
    for rank in held[1:]:
        other = entries[rank][item]
        if not same_value(first, other):
            one, two = (
                shown if (shown := number_of(value)) is not None else "another" for value in (first, other)
            )
            raise IncompleteError(
                f"{label} is {one} on rank {held[0]} and {two} on rank {rank}",
                hint=differing_hint(item),
            )
    return first


def check_same_groups(ranks: Sequence[SavedOptimizer], where: str) -> None:
    """Every rank's groups list the same numbers.

    Raises:
        IncompleteError: they do not.
    """
    first = [list(group_keys(group)) for group in ranks[0].groups]
    for rank, saved in enumerate(ranks):
        if [list(group_keys(group)) for group in saved.groups] != first:
            raise IncompleteError(
                f"{where}: rank {rank}'s parameter groups list other parameters than rank 0's",
                hint="The files are of different runs. Give the files of one save only.",
            )


def misfit(
    where: str, misfits: Sequence[Misfit], *, local_at_hand: bool, is_alone: bool = False
) -> LayoutError:
    """The error when no assumption fits; the one that came closest says most.

    Args:
        is_alone: there is one file only, and its state is no whole model's.
    """
    closest = max(misfits, key=lambda one: one.fitting, default=Misfit(0, "its ranks cannot be told apart"))
    files = "" if local_at_hand else ", the LOCAL_STATE_DICT files of the same save beside the optimizer's"
    alone = ""
    if is_alone:
        alone = (
            "If it is one rank's share, give the files of all ranks; if the others' were never saved, "
            "--only model converts the model alone. Else: "
        )
    return LayoutError(
        f"{where}: the optimizer does not fit the model: {closest.reason}",
        hint=f"{alone}Give the FSDP1 policy with --wrap pkg.module:Block, what it was to leave alone with "
        f"--ignored, the job's groups with --param-groups{files}, or all of it in a layout.json that "
        "capture_layout(model, optimizer) wrote in the old job.",
    )
