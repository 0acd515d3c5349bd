"""Several files of plain tensors: parts of one model, copies of it, or each rank's pieces of parameters."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import repeat

from checkpoint_convert.errors import AmbiguousFormatError, CheckpointError, UnsupportedError
from checkpoint_convert.readers.holdings import PARAMETER_NAMES, Holding
from checkpoint_convert.readers.joint_optimizers import of_one_model
from checkpoint_convert.readers.names import clean, flat_prefix
from checkpoint_convert.readers.rank_sets import RankSet
from checkpoint_convert.same_values import same_value
from checkpoint_convert.values import is_tensor

OPTIMIZER = "the optimizer's state"
"""What `differences` calls it."""


def unsharded(ranks: RankSet, *, use_optimizer: bool) -> Holding | bool | CheckpointError:
    """What files whose models are not sharded make together.

    Args:
        use_optimizer: False where only the model is wanted.

    Returns:
        The one holding they amount to; or True where each file holds 1-D pieces of the parameters, and
        False where they hold shards of flat parameters. An error where they are whole checkpoints that
        differ, or rows of which only the model's shapes tell the places (`slices`).
    """
    models = [dict(holding.model or {}) for holding in ranks.holdings]
    first = models[0]
    if any(flat_prefix(clean(name)) is not None for name in first):
        return False
    if all(not set(first) & set(other) for other in models[1:]):
        return _completed(ranks, use_optimizer=use_optimizer)
    if all(map(_is_left_over, repeat(first), models[1:])):
        return ranks.first
    if _are_copies(models) and (ranks.ranks == tuple(range(len(models))) or not _differing(models)):
        return ranks.first
    if all(len(shape) <= 1 for shape in _differing_shapes(models)):
        return True
    if any(_shapes(model) != _shapes(first) for model in models[1:]):
        return UnsupportedError(
            f"{ranks.name}: each file holds plain slices of the parameters, without saying of what",
            hint="Give the model with --model pkg.module:factory: its shapes tell. Else save with DCP, or as "
            "DTensors, in the job that can load it.",
        )
    return AmbiguousFormatError(
        f"{ranks.name}: {len(models)} whole checkpoints that differ, such as {ranks.holdings[0].path} and "
        f"{ranks.holdings[1].path}",
        hint="Give one of them; or, if they are ranks' rows of the parameters, the model with --model "
        "pkg.module:factory.",
    )


def _is_left_over(first: Mapping[str, object], other: Mapping[str, object]) -> bool:
    """Whether that is what rank0_only=True leaves of a model on other ranks: its ignored modules, which may
    differ. Rows of parameters are most of a model's names, those of which a rank has none left out."""
    if not set(other) < set(first):
        return False
    if 2 * len(other) < len(first):
        return _shapes(other).items() <= _shapes(first).items()
    return all(same_value(first[name], other[name]) for name in other)


def _completed(ranks: RankSet, *, use_optimizer: bool) -> Holding:
    """One model cut into files by name (`pytorch_model-00001-of-00002.bin`), and its optimizer likewise."""
    model: dict[str, object] = {}
    extras: dict[str, object] = {}
    for holding in ranks.holdings:
        model.update(holding.model or {})
        extras = {**holding.extras, **extras}
    saved = {str(one.path): one.optimizer for one in ranks.holdings if one.optimizer is not None}
    optimizer = ranks.first.optimizer
    if saved and use_optimizer:
        own = {str(one.path): list(one.model or {}) for one in ranks.holdings}
        optimizer = of_one_model(saved, ranks.name, "give the files of one of them only", own)
    return Holding(ranks.first.path, model, optimizer, extras)


def _differing(models: list[dict[str, object]]) -> list[str]:
    """Names of the first model whose values are not the same on all ranks that have them."""
    first = models[0]
    return [
        name
        for name in first
        if any(name in model and not same_value(first[name], model[name]) for model in models)
    ]


def differences(ranks: RankSet, *, use_optimizer: bool) -> list[str]:
    """What of the first file, which stands for all, others have otherwise; for the notice."""
    first, others = ranks.first, ranks.holdings[1:]
    names = _differing([dict(holding.model or {}) for holding in ranks.holdings])
    saved = [one.optimizer for one in others if one.optimizer is not None and one.optimizer.state]
    state = first.optimizer.state if use_optimizer and first.optimizer is not None else None
    if state is not None and not all(same_value(state, one.state) for one in saved):
        names.append(OPTIMIZER)
    return names + [
        key
        for key, value in first.extras.items()
        if any(key in one.extras and not same_value(value, one.extras[key]) for one in others)
    ]


def _differing_shapes(models: list[dict[str, object]]) -> set[tuple[int, ...]]:
    """Shapes of what the ranks do not have in common: ignored parameters and buffers are whole on each."""
    first = models[0]
    return {
        value.shape
        for name in first
        if any(not same_value(first[name], model.get(name)) for model in models)
        for model in models
        if is_tensor(value := model.get(name))
    }


def _shapes(model: Mapping[str, object]) -> dict[str, tuple[int, ...]]:
    return {name: value.shape for name, value in model.items() if is_tensor(value)}


def _are_copies(models: list[dict[str, object]]) -> bool:
    """The same names and elements, but for the few buffers each rank keeps for itself; no parameter."""
    if any(_shapes(other) != _shapes(models[0]) for other in models[1:]):
        return False
    differing = _differing(models)
    return len(differing) * 4 <= len(models[0]) and not any(
        name.endswith(PARAMETER_NAMES) for name in differing
    )
