"""Counts collectives per optimizer step, and those that reduce gradients per backward pass.

FSDP1 and FSDP2 both call `torch.distributed.<name>` through the module, so the module's attributes are
wrapped. Torch 2.13 renamed `reduce_scatter_tensor` and `all_gather_into_tensor` to `..._single`; both names
are counted as one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch import Tensor

from fsdp_migrate.verify.fixed_order import replacement
from fsdp_migrate.verify.probes.session import Session

_NAMES = {
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "all_gather_into_tensor": "all-gather",
    "all_gather_single": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "reduce_scatter_tensor": "reduce-scatter",
    "reduce_scatter_single": "reduce-scatter",
    "all_to_all_single": "all-to-all",
    "broadcast": "broadcast",
    "barrier": "barrier",
}


def attach(session: Session) -> None:
    """Wrap the collectives of `torch.distributed`."""
    nesting = [0]

    def counted(collective: Callable[..., Any], words: str) -> Callable[..., Any]:
        ordered = replacement(words)

        @functools.wraps(collective)
        def wrapper(*arguments: Any, **keywords: Any) -> Any:
            if nesting[0] or session.probing_depth:
                return collective(*arguments, **keywords)
            nesting[0] += 1
            try:
                reduces = session.in_backward and words in ("reduce-scatter", "all-reduce")
                _count(session, words, bool(reduces), arguments, keywords)
                if reduces and session.fixed_order and ordered is not None:
                    done, result = ordered(arguments, keywords)
                    if done:
                        return result
                return collective(*arguments, **keywords)
            finally:
                nesting[0] -= 1

        return wrapper

    for name, words in _NAMES.items():
        collective = getattr(dist, name, None)
        if collective is not None:
            setattr(dist, name, counted(collective, words))


def _count(
    session: Session, words: str, reduces: bool, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> None:
    session.now.collectives[words] += 1
    tensor = next((one for one in [*arguments, *keywords.values()] if isinstance(one, Tensor)), None)
    group = next(
        (one for one in [*arguments, *keywords.values()] if isinstance(one, dist.ProcessGroup)), None
    )
    alone = dist.get_world_size(group) == 1  # FSDP1 reduces over itself there, FSDP2 does not
    if reduces and not alone and tensor is not None and tensor.is_floating_point() and session.now.reductions:
        session.now.reductions[-1] += 1
        session.now.reduce_dtypes.add(str(tensor.dtype).removeprefix("torch."))
