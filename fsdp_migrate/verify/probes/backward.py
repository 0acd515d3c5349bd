"""Follows every backward pass: the loss it starts from, whether gradients were reduced in it, and what it
left.

`Tensor.backward` goes through `torch.autograd.backward`, so one wrapped function sees both. A reentrant
activation checkpoint calls it again from inside the engine; that is not a new backward pass.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fsdp_migrate.verify.probes.models import write_buffers
from fsdp_migrate.verify.probes.perturb import nudge
from fsdp_migrate.verify.probes.session import Session
from fsdp_migrate.verify.probes.shards import local_part


def attach(session: Session) -> None:
    """Wrap `torch.autograd.backward`."""
    original = torch.autograd.backward

    def backward(tensors: Any, *arguments: Any, **keywords: Any) -> None:
        if session.in_backward or torch._C._current_graph_task_id() != -1:
            original(tensors, *arguments, **keywords)
            return
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
    values = [local_part(loss).double().sum() for loss in losses if isinstance(loss, Tensor)]
    if values:
        session.now.losses.append(torch.stack(values).sum())
    session.now.reductions.append(0)
    if session.step == 0 and not session.buffers_written:
        session.buffers_written = True
        write_buffers(session, 0)


def _after(session: Session) -> None:
    """Keep the gradients as they are: should an optimizer step follow, they are those before any clipping."""
    index = session.index()
    if session.perturb:
        for holder in index.by_id.values():
            if holder.parameter.grad is not None:
                nudge(local_part(holder.parameter.grad), session.perturb, of_sums=session.perturb_sums)
    session.now.gradients = session.recorder.taken(index.gradients())
