"""Shard a model with FSDP2 where strategy, units and precision are chosen at run time.

Written by fsdp-migrate from this repository's FSDP1 code; plain PyTorch, yours to edit.
"""

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from torch import nn
from torch.distributed.fsdp import fully_shard


@contextlib.contextmanager
def taken_out(model: nn.Module, parameters: set[nn.Parameter]) -> Iterator[None]:
    """Inside of the block `fully_shard` does not see these parameters.

    It neither shards nor moves them; torch 2.7 has `ignored_params` for that.
    """
    taken = [
        (module, name, parameter)
        for module in model.modules()
        for name, parameter in module._parameters.items()
        if parameter in parameters
    ]
    for module, name, _ in taken:
        module._parameters[name] = None
    try:
        yield
    finally:
        for module, name, parameter in taken:
            module._parameters[name] = parameter


def shard_model(
    model: nn.Module,
    *,
    ignored_modules: Iterable[nn.Module] | None = None,
) -> nn.Module:
    """Shard `model` in place, unit by unit and then as a whole, and return it.

    Build the optimizer afterwards.
    """
    options: dict[str, Any] = {}
    ignored = list(ignored_modules or ())
    modules = {m for i in ignored if isinstance(i, nn.Module) for m in i.modules()}
    parameters = {p for m in modules for p in m.parameters()}
    with taken_out(model, parameters):
        fully_shard(model, **options)
    return model
