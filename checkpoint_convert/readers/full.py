"""Full tensors in one file, or in several that complete one another: model, optimizer, or both."""

from __future__ import annotations

from collections.abc import Mapping

from checkpoint_convert.errors import LayoutError
from checkpoint_convert.model import OptimizerContents
from checkpoint_convert.optim_state import SavedOptimizer, group_keys, listed_keys, named_contents
from checkpoint_convert.readers.names import clean, clean_names, ddp_prefix


def named_optimizer(
    saved: SavedOptimizer, shapes: Mapping[str, tuple[int, ...]], where: str
) -> OptimizerContents:
    """An optimizer keyed by FQN, under clean names.

    Args:
        shapes: of the model's parameters and buffers; empty where there is no model.
    """
    keys = {str(key): None for key in saved.state}
    keys |= {str(key): None for group in saved.groups for key in group_keys(group)}
    names: dict[object, str] = {
        key: short for short, key in clean_names({key: key for key in keys}, where).items()
    }
    if shapes and any(name not in shapes for name in names.values()):
        names = _found_in(names, shapes, where)
    return named_contents(saved, names, shapes, where)


def _found_in(
    names: Mapping[object, str], shapes: Mapping[str, tuple[int, ...]], where: str
) -> dict[object, str]:
    """Names with the `module.` that only one of the two sides has, taken off or put on."""
    own, lead = ddp_prefix(map(str, names.values())), ddp_prefix(shapes)
    changed = {key: f"{lead}{name[len(own) :]}" for key, name in names.items()}
    if all(name in shapes for name in changed.values()):
        return changed
    stranger = next(name for name in names.values() if name not in shapes)
    raise LayoutError(
        f"{where}: the optimizer knows a parameter {stranger}, the model does not",
        hint="Are the model and the optimizer of the same run? --only model converts the model alone.",
    )


def numbered_optimizer(
    saved: SavedOptimizer, parameters: Mapping[str, tuple[int, ...]], where: str
) -> OptimizerContents:
    """An unsharded optimizer whose keys number the parameters in the order of `named_parameters()`.

    Args:
        parameters: shapes by FQN in that order, tied ones once.

    Raises:
        LayoutError: there are more numbers than parameters, or a size does not fit.
    """
    order = list(parameters)
    numbers = listed_keys(saved)
    names: dict[object, str] = {}
    for group in saved.groups:
        given = group.get("param_names")
        if isinstance(given, list | tuple) and len(given) == len(group_keys(group)):
            names.update(zip(group_keys(group), (clean(str(name)) for name in given), strict=True))
    for number in numbers:
        if number not in names:
            if not isinstance(number, int) or not 0 <= number < len(order):
                raise LayoutError(
                    f"{where}: the optimizer counts to parameter {number}, the model has {len(order)}",
                    hint="Are the model and the optimizer of the same run?",
                )
            names[number] = order[number]
    return named_contents(saved, names, parameters, where)
