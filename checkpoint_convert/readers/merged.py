"""What every rank has for itself put together: optimizer state by name, hyper-parameters, extras."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from checkpoint_convert.errors import IncompleteError, UnsupportedError
from checkpoint_convert.model import Notice, TensorSource, Value, numel
from checkpoint_convert.optim_state import SavedOptimizer, number_of
from checkpoint_convert.plain_values import walk
from checkpoint_convert.readers.holdings import Holding
from checkpoint_convert.readers.rank_sets import RankSet
from checkpoint_convert.readers.sharded import OnRanks, equal_numbers, merge
from checkpoint_convert.same_values import differing_hint, same_value
from checkpoint_convert.tensor_sources import ConcatTensor
from checkpoint_convert.values import dotted, holds_tensor, is_tensor, module_of_state

DIFFERS_BY_RANK = "CK102"
"""A value that every rank has for itself differs between ranks; the first rank's is taken."""

_PROGRESS = frozenset(
    {"step", "steps", "global_step", "step_idx", "train_steps", "iter", "iter_num", "iteration", "epoch"}
    | {"num_updates", "current_step", "trained_steps"}
)
"""What jobs call how far they are, among the values they save."""
_OF_SCHEDULERS = frozenset({"last_epoch", "_step_count"})


def on_ranks(name: str, ranks: RankSet, models: Sequence[Mapping[str, object]]) -> OnRanks:
    numbers = ranks.ranks or ()
    here = [(rank, model[name]) for rank, model in zip(numbers, models, strict=True) if name in model]
    return OnRanks(name, tuple(rank for rank, _ in here), tuple(value for _, value in here))


def all_same(values: Sequence[object]) -> bool:
    first = values[0]
    return all(value is first or same_value(first, value) for value in values)


def differs(where: str, names: Sequence[str]) -> Notice:
    listed = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return Notice(DIFFERS_BY_RANK, f"{where}: {listed} differ between ranks; the first rank's are taken")


def padded_flat(found: OnRanks, where: str) -> TensorSource:
    """A flat parameter saved as plain tensors (`dict(model.named_parameters())`), padded or not.

    Raises:
        IncompleteError: their sizes are not those of one flat parameter's shards.
    """
    sizes = [numel(value.shape) for value in found.values if is_tensor(value)]
    between = [size for size in sizes if 0 < size < sizes[0]]
    is_flat = all(is_tensor(value) and len(value.shape) == 1 for value in found.values)
    if not is_flat or sizes != sorted(sizes, reverse=True) or len(between) > 1:
        raise IncompleteError(
            f"{where}: {found.name} has shards of different sizes", hint="Give the files of one save only."
        )
    return joined_pieces(found)


def joined_pieces(found: OnRanks) -> TensorSource:
    """A parameter's pieces one after another, in one dimension; its shape is the layout's to tell."""
    parts = [value for value in found.values if is_tensor(value)]
    return ConcatTensor(parts, parts[0].dtype, (sum(numel(part.shape) for part in parts),))


def merge_optimizers(
    ranks: RankSet, saved: Sequence[SavedOptimizer], notices: list[Notice]
) -> SavedOptimizer:
    state: dict[object, dict[str, object]] = {}
    differing: list[str] = []
    for key in dict.fromkeys(key for one in saved for key in one.state):
        entries = [one.state.get(key, {}) for one in saved]
        state[key] = {}
        for item in dict.fromkeys(item for entry in entries for item in entry):
            found = on_ranks(item, ranks, entries)
            labelled = OnRanks(f"optimizer state {key}.{item}", found.ranks, found.values)
            first = found.values[0]
            if number_of(first) is not None:
                equal_numbers(labelled, ranks.name)
            state[key][item] = merge(labelled, ranks.name)
            if state[key][item] is first and number_of(first) is None and not all_same(found.values):
                if not is_tensor(first) and holds_tensor(cast("Value", first)):
                    raise UnsupportedError(
                        f"{ranks.name}: {labelled.name} is another on each rank, and nothing says how its "
                        "parts belong together",
                        hint="Convert the model alone (--only model), or leave this state out.",
                    )
                differing.append(labelled.name)
    if differing:
        notices.append(differs(ranks.name, differing))
    return SavedOptimizer(state, saved[0].groups)


def differing_options(saved: Sequence[SavedOptimizer]) -> Iterator[str]:
    """Hyper-parameters that are not the same on all ranks."""
    for number, groups in enumerate(zip(*(one.groups for one in saved), strict=False)):
        for name in groups[0]:
            values = [group.get(name) for group in groups]
            if name not in ("params", "param_names") and not all_same(values):
                yield f"param_groups {number}'s {name}"


def merge_extras(holdings: Sequence[Holding], notices: list[Notice], where: str) -> dict[str, object]:
    """What all ranks agree on once; the rest by rank, since each rank's random state is its own."""
    refuse_other_moments(holdings, where)
    merged: dict[str, object] = {}
    for key in dict.fromkeys(key for holding in holdings for key in holding.extras):
        values = [holding.extras.get(key) for holding in holdings]
        if all(key in holding.extras for holding in holdings) and all_same(values):
            merged[key] = values[0]
        elif module_of_state(key) is not None:  # of the model, which is one
            merged[key] = next(value for value in values if value is not None)
            notices.append(differs(where, [key]))
        else:
            merged[key] = dict(enumerate(values))
            notices.append(
                Notice(
                    DIFFERS_BY_RANK, f"{where}: {key} differs between ranks; all of them are kept, by rank"
                )
            )
    return merged


def refuse_other_moments(holdings: Sequence[Holding], where: str) -> None:
    """How far a job was is the same in all files of a save; one that was cut short leaves some of them older.

    Raises:
        IncompleteError: two files were not equally far.
    """
    found: dict[tuple[object, ...], tuple[Holding, int]] = {}
    for holding in holdings:
        for path, leaf in walk(dict(holding.extras)):
            told = path[-1] in _OF_SCHEDULERS or (len(path) == 1 and str(path[0]).lower() in _PROGRESS)
            if not told or type(leaf) is not int:
                continue
            first, before = found.setdefault(path, (holding, leaf))
            if leaf != before:
                name = dotted(path)
                raise IncompleteError(
                    f"{where}: {name} is {before} in {first.path} and {leaf} in {holding.path}",
                    hint=differing_hint("step"),
                )
