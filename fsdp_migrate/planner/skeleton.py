"""A forward pass without activations: every unit adds up its own parameters, and calls the units inside it.

So FSDP gathers, frees, prefetches and reduces what it would in the real job, in the model's order, and the
peak is what a step takes before any activation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fsdp_migrate.planner.own_model import OwnModel


@dataclass(frozen=True, slots=True)
class _Slot:
    """Where a parameter or a unit is found: FSDP puts others in its place."""

    owner: nn.Module
    name: str
    is_unit: bool

    def add_to(self, total: Tensor) -> Tensor:
        there: Any = getattr(self.owner, self.name)
        result: Tensor = there(total) if self.is_unit else total + there.sum()
        return result


def strip(own: OwnModel) -> None:
    """Replace the forward of the root and of every unit."""
    units = {id(module) for _, module in own.units}
    seen: set[int] = set()
    for module in (own.module, *(module for _, module in own.units)):
        slots = list(_slots(module, units, seen))
        module.forward = _sum(slots)


def _slots(module: nn.Module, units: set[int], seen: set[int]) -> Iterator[_Slot]:
    for name, parameter in module._parameters.items():
        if parameter is not None and id(parameter) not in seen and not parameter.is_complex():
            seen.add(id(parameter))
            yield _Slot(module, name, False)
    for name, child in module._modules.items():
        if child is None or id(child) in seen:
            continue
        seen.add(id(child))
        if id(child) in units:
            yield _Slot(module, name, True)
        else:
            yield from _slots(child, units, seen)


def _sum(slots: list[_Slot]) -> Callable[[Tensor], Tensor]:
    def forward(total: Tensor) -> Tensor:
        for slot in slots:
            total = slot.add_to(total)
        return total

    return forward


def call(model: nn.Module) -> Tensor:
    """The "loss" of a stripped model, 0-dim."""
    loss: Tensor = model(torch.zeros(()))
    return loss
