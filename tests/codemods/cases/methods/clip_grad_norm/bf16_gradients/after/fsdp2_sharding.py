"""What FSDP1's wrapper did in training and checkpoints, for models sharded with FSDP2.

Written by fsdp-migrate from this repository's FSDP1 code; plain PyTorch, yours to edit.
"""

import functools
import math
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor


@torch.no_grad()
def clip_grad_norm_(
    parameters: Iterable[nn.Parameter], max_norm: float, norm_type: float = 2.0
) -> torch.Tensor:
    """Clip by the norm of the whole gradient, summed up in float32; return the norm.

    Gradients may be of low precision, on several meshes, or not sharded at all.
    """
    norm_type = float(norm_type)
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        return torch.tensor(0.0)
    groups: dict[tuple[object, ...], list[torch.Tensor]] = {}
    for gradient in gradients:
        key: tuple[object, ...] = ()
        if isinstance(gradient, DTensor):
            key = (gradient.device_mesh, gradient.placements)
        groups.setdefault(key, []).append(gradient)
    total = torch.zeros((), device=gradients[0].device)
    for group in groups.values():
        local = [g.to_local() if isinstance(g, DTensor) else g for g in group]
        norms = [
            torch.linalg.vector_norm(g, norm_type, dtype=torch.float32)
            for g in local
            if g.numel()
        ]
        norm = (
            torch.linalg.vector_norm(torch.stack(norms), norm_type)
            if norms
            else torch.zeros_like(total)
        )
        norm = norm if math.isinf(norm_type) else norm**norm_type
        if isinstance(group[0], DTensor):
            for dim, placement in enumerate(group[0].placements):
                # A strided shard is no `is_shard()`.
                if not placement.is_replicate():
                    operation = (
                        dist.ReduceOp.MAX
                        if math.isinf(norm_type)
                        else dist.ReduceOp.SUM
                    )
                    dist.all_reduce(
                        norm, op=operation, group=group[0].device_mesh.get_group(dim)
                    )
        total = torch.maximum(total, norm) if math.isinf(norm_type) else total + norm
    if not math.isinf(norm_type):
        total = total ** (1.0 / norm_type)
    factor = torch.clamp(max_norm / (total + 1e-6), max=1.0)
    for gradient in gradients:
        part = gradient.to_local() if isinstance(gradient, DTensor) else gradient
        part.mul_(factor.to(part.device, part.dtype))
    return total.to(functools.reduce(torch.promote_types, [g.dtype for g in gradients]))
