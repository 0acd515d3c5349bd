"""Collectives of whole tensors that gloo does not have in older releases (2.1 at least), made of those it has.

FSDP1 gathers into one tensor and scatters the sum of one. Where gloo refuses that, before anything is sent,
the same is done by `all_gather` and `all_reduce`: more is moved, and what comes out is the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch import Tensor

Say = Callable[[str], None]
_REFUSED = "support"
"""In what gloo says of what it lacks: "no support for _allgather_base", "does not support reduce_scatter"."""


def apply(say: Say) -> None:
    """Wrap the two collectives in this process; before probes wrap them, which then count one call."""
    _stand_in("all_gather_into_tensor", _gather, say)
    _stand_in("reduce_scatter_tensor", _scatter_sum, say)


def _stand_in(name: str, other: Callable[..., None], say: Say) -> None:
    collective = getattr(dist, name, None)
    if collective is None:
        return
    refused = [False]

    @functools.wraps(collective)
    def wrapper(*arguments: Any, **keywords: Any) -> Any:
        if not refused[0]:
            try:
                return collective(*arguments, **keywords)
            except RuntimeError as error:
                if keywords.get("async_op") or _REFUSED not in str(error) or not _is_gloo(keywords):
                    raise
                refused[0] = True
                say(f"{name}: this release of gloo has none; it is made of others")
        other(*arguments, **keywords)
        return None

    setattr(dist, name, wrapper)


def _is_gloo(keywords: dict[str, Any]) -> bool:
    return "gloo" in str(dist.get_backend(keywords.get("group")))


def _gather(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> None:
    parts = list(output_tensor.view(-1).chunk(dist.get_world_size(group)))
    dist.all_gather(parts, input_tensor.reshape(-1), group=group)


def _scatter_sum(
    output: Tensor,
    input: Tensor,
    op: Any = dist.ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
) -> None:
    whole = input.reshape(-1).clone()
    dist.all_reduce(whole, op=op, group=group)
    mine = whole.chunk(dist.get_world_size(group))[dist.get_rank(group)]
    output.copy_(mine.view_as(output))
