"""The parameters of the job's models, found again only when their modules hold other ones."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from fsdp_migrate.verify.probes.shards import ParameterIndex, index_parameters

_REMEMBERED = 8
"""Sets of parameters, over all models."""


class Indices:
    """FSDP shows two sets of parameters in turn, sharded and gathered.

    What is remembered holds on to its parameters, so that the `id` of one cannot become another's.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], ParameterIndex] = {}

    def of(self, models: list[list[nn.Module]]) -> ParameterIndex:
        """All parameters of all models, at this moment; names of all but the first have a `prefix`.

        Args:
            models: all modules of each, itself first.
        """
        indices = [self._of(modules, prefix(number)) for number, modules in enumerate(models)]
        if len(indices) == 1:
            return indices[0]
        return ParameterIndex(
            [holder for index in indices for holder in index.holders],
            {key: holder for index in indices for key, holder in index.by_id.items()},
            {key: shape for index in indices for key, shape in index.shapes.items()},
            {key: wanted for index in indices for key, wanted in index.trainable.items()},
            {key: is_sharded for index in indices for key, is_sharded in index.sharded.items()},
            [names for index in indices for names in index.tied],
            {key: why for index in indices for key, why in index.unreadable.items()},
        )

    def _of(self, modules: list[nn.Module], name: str) -> ParameterIndex:
        model = modules[0]
        shown = (id(model), *_shown_parameters(modules))
        found = self._known.get(shown)
        if found is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            found = self._known[shown] = index_parameters(model, name)
        return found

    def clear(self) -> None:
        """Let go of all models."""
        self._known.clear()


def prefix(number: int) -> str:
    """What names of a model start with, whose number counts from 0: nothing for the first."""
    return f"model{number + 1}" if number else ""


def _shown_parameters(modules: list[nn.Module]) -> Iterator[int]:
    """What tells whether a model still holds the parameters that it held, and trains the same of them."""
    for module in modules:
        for parameter in module._parameters.values():
            if parameter is not None:
                yield 2 * id(parameter) + parameter.requires_grad
