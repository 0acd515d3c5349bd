"""Several optimizers of one model as one, as FSDP2's `get_optimizer_state_dict(model, optimizers)` has them.

Those that name their parameters are put side by side. Those that number them, each from 0, are counted on:
they are then what one optimizer with all of their groups is, and what tells the order of groups tells theirs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from checkpoint_convert.errors import UnsupportedError
from checkpoint_convert.optim_state import SavedOptimizer, group_keys, listed_keys


def of_one_model(
    saved: Mapping[str, SavedOptimizer],
    where: str,
    choice: str = "choose one of them with --from-key",
    names: Mapping[str, Collection[str]] | None = None,
) -> SavedOptimizer:
    """All states, and the groups one after another.

    Args:
        saved: by their names in the file, or their files; at least one.
        choice: how the user takes one of them alone, for hints.
        names: by the same keys, the tensors of the model that each has to itself, in the model's order.

    Raises:
        UnsupportedError: some name their parameters and others number them; or two have the same one.
    """
    if len(saved) == 1:
        return next(iter(saved.values()))
    if all(_is_of(one, (names or {}).get(name, ())) for name, one in saved.items()):
        saved = {name: _named(one, (names or {})[name]) for name, one in saved.items()}
    elif any(one.by_number for one in saved.values()):
        saved = _counted_on(saved, where, choice)
    owners: dict[object, str] = {}
    for name, one in saved.items():
        for key in dict.fromkeys([*one.state, *listed_keys(one)]):
            if owners.setdefault(key, name) != name:
                raise UnsupportedError(
                    f"{where}: {owners[key]} and {name} both have state of {key}: they are not of one model",
                    hint=f"{choice[0].upper()}{choice[1:]}.",
                )
    return SavedOptimizer(
        {key: entry for one in saved.values() for key, entry in one.state.items()},
        [group for one in saved.values() for group in one.groups],
    )


def _is_of(saved: SavedOptimizer, names: Collection[str]) -> bool:
    """Whether its numbers are those of just these parameters: one group gives them in the model's order."""
    return len(saved.groups) == 1 and listed_keys(saved) == list(range(len(names))) != []


def _named(saved: SavedOptimizer, names: Collection[str]) -> SavedOptimizer:
    by_number: dict[object, str] = dict(enumerate(names))
    state = {by_number.get(key, key): entry for key, entry in saved.state.items()}
    return SavedOptimizer(state, [{**group, "params": list(names)} for group in saved.groups])


def _counted_on(saved: Mapping[str, SavedOptimizer], where: str, choice: str) -> dict[str, SavedOptimizer]:
    """Numbers that go on from one optimizer to the next, as torch numbers through the groups of one."""
    found, count = {}, 0
    for name, one in saved.items():
        numbers = listed_keys(one)
        if numbers != list(range(len(numbers))) or not set(one.state) <= set(numbers):
            raise UnsupportedError(
                f"{where}: the optimizers {', '.join(saved)} cannot be joined: {name} does not number its "
                "parameters from 0, as others of them do",
                hint="Save what FSDP.optim_state_dict(model, optimizer) returns for each, convert the model "
                f"alone (--only model), or {choice}.",
            )
        places: dict[object, object] = {number: at for at, number in enumerate(numbers, count)}
        groups = [{**group, "params": [places[key] for key in group_keys(group)]} for group in one.groups]
        found[name] = SavedOptimizer({places[key]: entry for key, entry in one.state.items()}, groups)
        count += len(numbers)
    return found
