"""Shard a model with FSDP2 where strategy, units and precision are chosen at run time.

Written by fsdp-migrate from this repository's FSDP1 code; plain PyTorch, yours to edit.
"""

from collections.abc import Iterable

from torch import nn


def transformer_auto_wrap_policy(
    module: nn.Module,
    recurse: bool,
    nonwrapped_numel: int,
    transformer_layer_cls: Iterable[type[nn.Module]],
) -> bool:
    """Modules of the given classes are units."""
    return recurse or isinstance(module, tuple(transformer_layer_cls))
