"""`SyncBatchNorm` on a CPU, where torch refuses it: the statistics of all ranks' batch by all-reduce.

Follows `SyncBatchNorm.forward` (torch/nn/modules/batchnorm.py, torch/nn/modules/_functions.py). It rounds
otherwise than on a GPU, and alike in both arms.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


def apply(say: Callable[[str], None]) -> None:
    """Let it train on CPU tensors in this process."""
    refused = nn.SyncBatchNorm.forward

    @functools.wraps(refused)
    def forward(self: nn.SyncBatchNorm, input: Tensor) -> Tensor:
        if not self.training or input.device.type != "cpu" or not dist.is_initialized():
            return refused(self, input)
        say("SyncBatchNorm takes the statistics of all ranks' batch by all-reduce")
        self._check_input_dim(input)
        return _normalized(self, input)

    nn.SyncBatchNorm.forward = forward  # type: ignore[method-assign]


class _Sum(torch.autograd.Function):
    """Over all ranks, of values and of their gradients."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return _sum(values, group)

    @staticmethod
    def backward(ctx: Any, gradients: Tensor) -> tuple[Tensor, None]:
        return _sum(gradients, ctx.group), None


def _sum(values: Tensor, group: Any) -> Tensor:
    values = values.clone()
    dist.all_reduce(values, group=group)
    return values


def _normalized(self: nn.SyncBatchNorm, input: Tensor) -> Tensor:
    """`input` (N, C, ...) by channel, in its dtype; running statistics follow those of all ranks."""
    group: Any = self.process_group or dist.group.WORLD
    reduced = [0, *range(2, input.dim())]
    wide = input.float()
    counted = torch.cat([wide.sum(reduced), wide.new_full((1,), wide.numel() / wide.shape[1])])
    total: Tensor = _Sum.apply(counted, group)  # type: ignore[no-untyped-call]
    count = total[-1].detach()
    mean = total[:-1] / count
    shape = [1, -1, *(1 for _ in reduced[1:])]
    centred = wide - mean.view(shape)
    variance: Tensor = _Sum.apply(centred.square().sum(reduced), group) / count  # type: ignore[no-untyped-call]
    if self.track_running_stats:
        _follow(self, mean.detach(), variance.detach() * count / (count - 1))
    result: Tensor = centred * (variance + self.eps).rsqrt().view(shape)
    if self.weight is not None:
        result = result * self.weight.view(shape)
    if self.bias is not None:
        result = result + self.bias.view(shape)
    return result.to(input.dtype)


@torch.no_grad()
def _follow(self: nn.SyncBatchNorm, mean: Tensor, variance: Tensor) -> None:
    """Move the running statistics; `momentum=None` makes them means of all batches."""
    assert self.num_batches_tracked is not None
    self.num_batches_tracked.add_(1)
    part = 1 / int(self.num_batches_tracked) if self.momentum is None else self.momentum
    for running, now in ((self.running_mean, mean), (self.running_var, variance)):
        assert running is not None
        running.lerp_(now.to(running.dtype), part)
