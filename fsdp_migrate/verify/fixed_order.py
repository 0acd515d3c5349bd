"""Gradient reductions that add the ranks' contributions in rank order, whatever the layout of the buffer.

Reductions of three and more ranks add in an order that depends on where in its buffer an element lies, and
FSDP1 and FSDP2 lay their buffers out differently: equal gradients then differ in the last bits. With one
order in both arms they are equal to the last bit (measured on torch 2.13 for fp32, bf16 and fp16). FSDP1's
division by about the square root of the number of ranks before and after the sum is made one division after
it, as FSDP2 divides.

Relies on `torch/distributed/fsdp/_runtime_utils.py::_reduce_grad` and
`torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py::foreach_reduce`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import FullyShardedDataParallel

_OPERATIONS = (dist.ReduceOp.SUM, dist.ReduceOp.AVG)

Ordered = Callable[[tuple[Any, ...], dict[str, Any]], tuple[bool, Any]]


def replacement(words: str) -> Ordered | None:
    """The fixed-order form of a collective.

    Returns:
        A function of the call's arguments that answers whether it has done the collective, or `None`.
    """
    return {"reduce-scatter": _reduce_scatter, "all-reduce": _all_reduce}.get(words)


def _reduce_scatter(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[bool, Any]:
    names = ("output", "input", "op", "group", "async_op")
    call = {**dict(zip(names, arguments, strict=False)), **keywords}
    output, contribution, operation, group = call["output"], call["input"], call.get("op"), call.get("group")
    if not _can(operation, call, contribution):
        return False, None
    size = dist.get_world_size(group)
    parts = torch.empty_like(contribution.reshape(-1))
    dist.all_to_all_single(parts, contribution.reshape(-1), group=group)
    output.copy_(_sum(parts.view(size, -1), operation).view_as(output))
    return True, None


def _all_reduce(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[bool, Any]:
    call = {**dict(zip(("tensor", "op", "group", "async_op"), arguments, strict=False)), **keywords}
    tensor, operation, group = call["tensor"], call.get("op"), call.get("group")
    if not _can(operation, call, tensor) or not tensor.is_floating_point():
        return False, None
    size = dist.get_world_size(group)
    parts = tensor.new_empty(size * tensor.numel())
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    gather(parts, tensor.reshape(-1), group=group)
    tensor.copy_(_sum(parts.view(size, -1), operation).view_as(tensor))
    return True, None


def _can(operation: Any, call: dict[str, Any], tensor: object) -> bool:
    summed = operation is None or any(operation == known for known in _OPERATIONS)
    return summed and not call.get("async_op") and type(tensor) is Tensor


def _sum(parts: Tensor, operation: Any) -> Tensor:
    total = parts[0].clone()
    for part in parts[1:]:
        total += part
    if operation is not None and operation == dist.ReduceOp.AVG:
        total /= len(parts)
    return total


def divide_once_in_fsdp1() -> None:
    """Make every FSDP1 unit built from now on divide once, after the sum, unless it reduces in fp16."""
    build = FullyShardedDataParallel.__init__

    def __init__(self: Any, *arguments: Any, **keywords: Any) -> None:
        build(self, *arguments, **keywords)
        precision = self.mixed_precision
        low = (precision.reduce_dtype or precision.param_dtype) is torch.float16
        if not low and hasattr(self, "_gradient_predivide_factor"):
            factor = self._gradient_predivide_factor * self._gradient_postdivide_factor
            self._gradient_predivide_factor, self._gradient_postdivide_factor = 1.0, factor

    FullyShardedDataParallel.__init__ = __init__  # type: ignore[method-assign]
