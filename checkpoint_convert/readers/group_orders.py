"""The order in which an optimizer numbered its parameters, when it was given groups.

Numbers run through the groups one after another, so a split into decayed and undecayed parameters re-orders
them. Names decide where there are any; else the usual splits are candidates and the sizes choose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from checkpoint_convert.errors import LayoutError
from checkpoint_convert.layout import ModelLayout
from checkpoint_convert.model import numel
from checkpoint_convert.optim_state import SavedOptimizer, group_keys
from checkpoint_convert.raw_state import Slot, element_shapes
from checkpoint_convert.readers.names import clean, flat_prefix
from checkpoint_convert.readers.options import ReadOptions

Size: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""Elements on each rank, and the shape where it is whole and has two dimensions or more."""


@dataclass(frozen=True, slots=True)
class Order:
    """One order of the slots.

    Attributes:
        founded: more than sizes speak for it: names, one group alone, or the groups' weight decay.
    """

    slots: tuple[Slot, ...]
    founded: bool


def orders(
    slots: Sequence[Slot],
    saved: SavedOptimizer,
    sizes: Sequence[Size | None],
    layout: ModelLayout,
    options: ReadOptions,
) -> Iterator[Order]:
    """Candidate orders of the slots, each once.

    Args:
        sizes: of each number's state.

    Raises:
        LayoutError: the groups that were given name a parameter the model has not.
    """
    named = _given_groups(saved, layout, options)
    if named is not None:
        ordered = _by_names(slots, named, layout)
        if ordered is not None:
            yield Order(tuple(ordered), founded=True)
        return
    groups = [group for group in saved.groups if group_keys(group)]
    seen = set()
    for chosen in (list(slots), [slot for slot in slots if _trainable(slot)]):
        if len(chosen) != sum(len(group_keys(group)) for group in groups):
            continue
        for order in (*_splits(chosen, groups), *_by_sizes(chosen, groups, sizes)):
            if order.slots not in seen:
                seen.add(order.slots)
                yield order
    if not seen:
        yield Order(tuple(slots), founded=True)  # of the wrong number; the check that follows says so


def sizes_of(ranks: Sequence[SavedOptimizer], numbers: Sequence[object]) -> list[Size | None]:
    """How large the state of each number is; None where it has none."""
    found: list[Size | None] = []
    for number in numbers:
        shapes = [element_shapes(saved.state.get(number, {})) for saved in ranks]
        numels = tuple(max(map(numel, on_rank), default=0) for on_rank in shapes)
        matrix = next((shape for on_rank in shapes for shape in on_rank if len(shape) > 1), ())
        found.append((numels, matrix) if any(numels) else None)
    return found


def interchangeable(slots: Sequence[Slot], ranks: Sequence[SavedOptimizer]) -> tuple[Slot, Slot] | None:
    """Two slots of different groups that sizes cannot tell apart, at least one of which has state."""
    places = [(at, number) for at, group in enumerate(ranks[0].groups) for number in group_keys(group)]
    with_state: dict[object, tuple[int, Slot]] = {}
    without = []
    for slot, (at, number) in zip(slots, places, strict=True):
        alike = (slot.numels, tuple(spec.shape for _, _, spec in slot.members) if slot.whole else ())
        if not any(saved.state.get(number) for saved in ranks):
            without.append((alike, at, slot))
        elif with_state.setdefault(alike, (at, slot))[0] != at:
            return with_state[alike][1], slot
    for alike, at, slot in without:
        if alike in with_state and with_state[alike][0] != at:
            return with_state[alike][1], slot
    return None


def _given_groups(
    saved: SavedOptimizer, layout: ModelLayout, options: ReadOptions
) -> Sequence[Sequence[str]] | None:
    """Names per group: from the caller, the groups themselves, or the layout of the old job."""
    if options.param_groups is not None:
        return [[clean(name) for name in group] for group in options.param_groups]
    own = [group.get("param_names") for group in saved.groups]
    if own and all(isinstance(names, list | tuple) for names in own):
        return [[clean(str(name)) for name in names] for names in own if isinstance(names, list | tuple)]
    return layout.groups


def _by_names(
    slots: Sequence[Slot], groups: Sequence[Sequence[str]], layout: ModelLayout
) -> list[Slot] | None:
    """Slots in the order their names come; a flat parameter answers to its own name and its members'.

    None where a name is that of a flat parameter these slots have not.
    """
    known: dict[str, Slot] = {}
    for slot in slots:
        prefix = slot.name.removesuffix("._flat_param")
        for name in (slot.name, "_flat_param" if prefix == "root" else slot.name):
            known[name] = slot
        for name, _, _ in slot.members:
            known[name] = slot
    ordered: dict[Slot, None] = {}
    for group in groups:
        for name in group:
            if name not in known:
                if flat_prefix(name) is not None or any(spec.fqn == name for spec in layout.parameters):
                    return None
                raise LayoutError(
                    f"the parameter groups name {name}, which is no parameter of the model",
                    hint="Give the groups as the old job gave them to its optimizer.",
                )
            ordered[known[name]] = None
    return list(ordered)


def _trainable(slot: Slot) -> bool:
    return any(spec.requires_grad for _, _, spec in slot.members)


def _splits(slots: Sequence[Slot], groups: Sequence[Mapping[str, object]]) -> Iterator[Order]:
    """The usual two-way splits, in both orders, and the plain order cut at the sizes."""
    sizes = [len(group_keys(group)) for group in groups]
    if len(sizes) == 2:
        for decays in _DECAY_RULES:
            parts = [slot for slot in slots if decays(slot)], [slot for slot in slots if not decays(slot)]
            for decayed, (one, two) in enumerate((parts, parts[::-1])):
                if [len(one), len(two)] == sizes:
                    yield Order((*one, *two), founded=_decays_only(decayed, groups))
    yield Order(tuple(slots), founded=len(sizes) == 1)


def _by_sizes(
    slots: Sequence[Slot], groups: Sequence[Mapping[str, object]], sizes: Sequence[Size | None]
) -> Iterator[Order]:
    """The order that sizes alone tell, where no two groups have one in common: all parameters of one size are
    in one group, which lists them as the model does."""
    owners = [at for at, group in enumerate(groups) for _ in group_keys(group)]
    places: dict[Size | None, list[int]] = {}
    for place, size in enumerate(sizes):
        places.setdefault(size, []).append(place)
    if len(groups) < 2 or any(len({owners[place] for place in found}) > 1 for found in places.values()):
        return
    ranks = max((len(size[0]) for size in sizes if size is not None), default=0)
    by_size: dict[Size | None, list[Slot]] = {}
    for slot in slots:
        shape = slot.members[0][2].shape if slot.whole else ()
        size = slot.numels * (ranks // len(slot.numels)), shape if len(shape) > 1 else ()
        by_size.setdefault(size if size in places else None, []).append(slot)
    if any(len(by_size.get(size, ())) != len(found) for size, found in places.items()):
        return
    order = {
        place: slot
        for size, found in places.items()
        for place, slot in zip(found, by_size[size], strict=True)
    }
    yield Order(tuple(order[place] for place in sorted(order)), founded=False)


def _decays_only(decayed: int, groups: Sequence[Mapping[str, object]]) -> bool:
    """Whether this one of two groups has a weight decay, and the other has none."""
    return bool(groups[decayed].get("weight_decay")) and groups[1 - decayed].get("weight_decay") == 0


def _is_matrix(slot: Slot) -> bool:
    return all(len(spec.shape) >= 2 for _, _, spec in slot.members)


def _is_no_bias(slot: Slot) -> bool:
    return not any(name.endswith("bias") for name, _, _ in slot.members)


def _is_no_bias_or_norm(slot: Slot) -> bool:
    return not any(
        name.endswith("bias") or "norm" in name.lower() or ".ln" in name.lower()
        for name, _, _ in slot.members
    )


def _is_no_embedding(slot: Slot) -> bool:
    return _is_matrix(slot) and not any("emb" in name.lower() for name, _, _ in slot.members)


_DECAY_RULES: tuple[Callable[[Slot], bool], ...] = (
    _is_matrix,
    _is_no_bias,
    _is_no_bias_or_norm,
    _is_no_embedding,
)
