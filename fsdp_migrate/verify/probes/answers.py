"""Records what models answer when they are called without gradients: evaluation, generation, teachers.

A job whose training is right may be evaluated in another mode, precision or with other weights, and what it
prints then can be rounded, averaged or only written to a file.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from fsdp_migrate.verify.model import ANSWER
from fsdp_migrate.verify.probes.between import random_state
from fsdp_migrate.verify.probes.recorder import whole
from fsdp_migrate.verify.probes.session import Session
from fsdp_migrate.verify.probes.shards import local_part

_CALLS = 4
"""Of each model between two optimizer steps; generation calls it once for each token."""
_WRAPS = frozenset({"_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod"})
"""What a wrapper holds its module as; FSDP1's own mode says nothing."""
_TENSORS = 8
_ELEMENTS = 1 << 24
"""Of each tensor, at most; logits of a large vocabulary are gigabytes."""

Take = Callable[[str, list[Tensor]], None]
"""Called with a digest of what went in by name, and with what came out."""


def listen(session: Session, model: nn.Module, inputs: str) -> Take | None:
    """What to call when the model has answered; `None` where enough of its answers are known.

    Args:
        inputs: digest of what goes in by position.
    """
    label = _label(session, model)
    number = session.now.answers.get(label, 0) + 1
    if not label or number > _CALLS:
        return None
    session.now.answers[label] = number
    training = sum(each.training and _WRAPS.isdisjoint(each._modules) for each in model.modules())
    name = f"{label}, call {number}, rank {os.environ['RANK']}"
    facts = {"step": session.step, "model": label, "call": number, "training": training}
    facts["random"] = random_state()

    def take(named: str, outputs: list[Tensor]) -> None:
        session.recorder.event("answer", **facts, inputs=f"{inputs} {named}")
        session.recorder.tensors(session.step, ANSWER, _outputs(name, outputs))

    return take


def _label(session: Session, model: nn.Module) -> str:
    for kind, known in (("model", session.models), ("other", session.others)):
        for position, each in enumerate(known, 1):
            if any(model is part for part in each.modules()):
                return f"{kind}{position}"
    return ""


def _outputs(name: str, tensors: list[Tensor]) -> Iterator[tuple[Any, Tensor]]:
    floats = (one for one in tensors if one.is_floating_point() and one.layout is torch.strided)
    for position, one in enumerate(itertools.islice(floats, _TENSORS), 1):
        flat = local_part(one).reshape(-1)[:_ELEMENTS]
        yield whole(f"{name}, output {position}", flat.contiguous())
