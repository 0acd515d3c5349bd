"""The order in which an optimizer numbered its parameters, when it was given groups.

Numbers run through the groups one after another, so a split into decayed and undecayed parameters re-orders
them. Names decide where there are any; else the usual splits are candidates and the sizes choose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from checkpoint_convert.errors import LayoutError
from checkpoint_convert.layout import ModelLayout
from checkpoint_convert.optim_state import SavedOptimizer, group_keys
from checkpoint_convert.raw_state import Slot
from checkpoint_convert.readers.names import clean, flat_prefix
from checkpoint_convert.readers.options import ReadOptions


def orders(
    slots: Sequence[Slot], saved: SavedOptimizer, layout: ModelLayout, options: ReadOptions
) -> Iterator[list[Slot]]:
    """Candidate orders of the slots, each once.

    Raises:
        LayoutError: the groups that were given name a parameter the model has not.
    """
    named = _given_groups(saved, layout, options)
    if named is not None:
        ordered = _by_names(slots, named, layout)
        if ordered is not None:
            yield ordered
        return
    sizes = [len(group_keys(group)) for group in saved.groups]
    seen = set()
    for chosen in (list(slots), [slot for slot in slots if _trainable(slot)]):
        if len(chosen) != sum(sizes):
            continue
        candidates = [chosen] if len(sizes) == 1 else list(_splits(chosen, sizes))
        for ordered in candidates:
            if tuple(ordered) not in seen:
                seen.add(tuple(ordered))
                yield ordered
    if not seen:
        yield list(slots)  # of the wrong number; the check that follows says so


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


def _splits(slots: Sequence[Slot], sizes: Sequence[int]) -> Iterator[list[Slot]]:
    """The usual two-way splits, in both orders, and the plain order cut at the sizes."""
    yield list(slots)
    if len(sizes) != 2:
        return
    for decays in _DECAY_RULES:
        parts = [slot for slot in slots if decays(slot)], [slot for slot in slots if not decays(slot)]
        for one, two in (parts, parts[::-1]):
            if [len(one), len(two)] == list(sizes):
                yield [*one, *two]


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
