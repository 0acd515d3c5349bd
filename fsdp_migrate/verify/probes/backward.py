"""Follows every backward pass: the loss it starts from, whether gradients were reduced in it, and what it
left.

`Tensor.backward` goes through `torch.autograd.backward`, so one wrapped function sees both. A reentrant
activation checkpoint calls it again from inside the engine; that is not a new backward pass.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any

import torch
from torch import Tensor
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

from fsdp_migrate.verify.probes.models import write_buffers
from fsdp_migrate.verify.probes.perturb import nudge
from fsdp_migrate.verify.probes.session import Session
from fsdp_migrate.verify.probes.shards import local_part


def attach(session: Session) -> None:
    """Wrap `torch.autograd.backward`, and what scales losses before it."""
    _scalers(session)
    original = torch.autograd.backward

    def backward(tensors: Any, *arguments: Any, **keywords: Any) -> None:
        if session.in_backward or torch._C._current_graph_task_id() != -1:
            original(tensors, *arguments, **keywords)
            return
        if session.ending:  # what follows the last step has been seen: evaluation, saving
            session.on_last_step()
        with session.probing() as active:
            if active:
                _before(session, tensors)
        session.in_backward += 1
        try:
            with session.span("backward"):
                original(tensors, *arguments, **keywords)
        finally:
            session.in_backward -= 1
        with session.probing() as active:
            if active:
                _after(session)

    torch.autograd.backward = backward


def _before(session: Session, tensors: Any) -> None:
    losses = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    losses = [loss for loss in losses if isinstance(loss, Tensor)]
    if losses:
        session.now.losses.append(torch.stack([_sum(loss) for loss in losses]).sum())
        own = [_before_scaling(session, loss) for loss in losses]
        session.now.unscaled.append(torch.stack(own).sum())
    session.has_passed = True
    session.now.reductions.append(0)
    if session.step == 0 and not session.buffers_written:
        session.buffers_written = True
        write_buffers(session, 0)


def _sum(tensor: Tensor) -> Tensor:
    return local_part(tensor).double().sum()


def _before_scaling(session: Session, loss: Tensor) -> Tensor:
    return next((value for scaled, value, _ in session.now.scaled if scaled() is loss), _sum(loss))


def _scalers(session: Session) -> None:
    """Keep what a gradient scaler is given: its factor is the scaler's business and not the loss."""
    for scaler in {ShardedGradScaler, getattr(torch.amp, "GradScaler", torch.cuda.amp.GradScaler)}:
        scaler.scale = _told(session, scaler.scale)  # type: ignore[method-assign]


def _told(session: Session, original: Any) -> Any:
    @functools.wraps(original)
    def scale(self: Any, outputs: Any) -> Any:
        result = original(self, outputs)
        with session.probing() as active:
            if active and isinstance(outputs, Tensor) and result is not outputs:
                session.now.scaled.append((weakref.ref(result), _sum(outputs), self._scale.clone()))
        return result

    return scale


def _after(session: Session) -> None:
    """Keep the gradients as they are: should an optimizer step follow, they are those before any clipping."""
    index = session.index()
    if session.perturb:
        for holder in index.by_id.values():
            if holder.parameter.grad is not None:
                nudge(local_part(holder.parameter.grad), session.perturb, of_sums=session.perturb_sums)
    session.now.gradients = session.recorder.taken(index.gradients())
