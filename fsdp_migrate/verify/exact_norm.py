"""Norms for clipping that are equal to the last bit in both arms: added up in float64, rounded once.

FSDP1 adds squares up over its flat shards and FSDP2 over rows of each parameter, so that their float32 norms
differ in the last bits, and with them every clipped gradient. In float64 the order changes nothing that is
left after rounding to the gradients' dtype.

Relies on `torch/distributed/fsdp/fully_sharded_data_parallel.py` (`_get_grad_norm`, whose result
`clip_grad_norm_` works on and rounds in the end) and `torch/nn/utils/clip_grad.py` (`_get_total_norm`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import fully_sharded_data_parallel as fsdp1
from torch.nn.utils import clip_grad

from fsdp_migrate.verify.probes.shards import is_dtensor


def apply() -> bool:
    """Patch both, before probes wrap the functions that call them.

    Returns:
        Whether this torch has them; 2.5 and earlier add up inside `torch.nn.utils.clip_grad_norm_`.
    """
    if not (hasattr(clip_grad, "_get_total_norm") and hasattr(fsdp1, "_get_grad_norm")):
        return False
    of_tensors: Any = clip_grad._get_total_norm

    def total_norm(tensors: Any, *arguments: Any, **keywords: Any) -> Tensor:
        given = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        norm: Any = of_tensors([each.double() for each in given], *arguments, **keywords)
        if is_dtensor(norm):
            from torch.distributed.tensor import Replicate

            norm = norm.redistribute(norm.device_mesh, [Replicate()] * norm.device_mesh.ndim)
        whole: Tensor = norm
        return whole

    def norm_of_shards(
        params: Iterable[nn.Parameter], norm_type: float, zero: Tensor, device: torch.device
    ) -> Tensor:
        found = [each.grad.detach().double() for each in params if each.grad is not None]
        if not found:
            nothing: Tensor = zero.double()
            return nothing
        norms = [torch.linalg.vector_norm(each, norm_type) for each in found]
        total: Tensor = torch.linalg.vector_norm(torch.stack(norms), norm_type)
        return total.to(device)

    clip = clip_grad.clip_grad_norm_

    @functools.wraps(clip)
    def rounded(parameters: Any, *arguments: Any, **keywords: Any) -> Tensor:
        given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        norm: Tensor = clip(given, *arguments, **keywords)
        dtypes = [each.grad.dtype for each in given if each.grad is not None]
        return norm.to(functools.reduce(torch.promote_types, dtypes)) if dtypes else norm

    clip_grad._get_total_norm = total_norm
    clip_grad.clip_grad_norm_ = torch.nn.utils.clip_grad_norm_ = rounded
    fsdp1._get_grad_norm = norm_of_shards
    return True
