"""Two training steps of one arm, the second one followed from the first allocation to the last.

The first makes the optimizer's state, and in it DTensor works out shapes with tensors that no job allocates;
the second is what all others are like.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves

from fsdp_migrate.planner import skeleton
from fsdp_migrate.planner.inputs import Call
from fsdp_migrate.planner.model import ArmMemory, Category, Phase
from fsdp_migrate.planner.recorder import Recorder
from fsdp_migrate.planner.sharding import clip_gradients, units_of
from fsdp_migrate.planner.timeline import summarise


class MeasuredArm:
    """A sharded model with its optimizer, ready for steps inside `recorder.watch()`."""

    def __init__(
        self, name: str, model: nn.Module, make: Callable[[Any], Optimizer], recorder: Recorder
    ) -> None:
        self._name = name
        self._model = model
        self._recorder = recorder
        self._optimizer = make([one for one in model.parameters() if one.requires_grad])
        self._handles = [handle for path, unit in units_of(model) for handle in self._follow(path, unit)]
        self._parameters = recorder.mark(Category.PARAMETERS, model.parameters())
        self._buffers = recorder.mark(Category.BUFFERS, model.buffers())
        self.notes: dict[str, None] = {}

    def measure(self, call: Call | None) -> ArmMemory:
        """Two steps with these inputs; without any, of a model that `skeleton.strip` has been at."""
        if call is not None:
            self._recorder.mark(Category.INPUTS, call.tensors)
        self._step(call)
        self._recorder.begin()
        gradients = self._step(call)
        state = [
            leaf for leaf in tree_leaves(list(self._optimizer.state.values())) if isinstance(leaf, Tensor)
        ]
        optimizer = self._recorder.mark(Category.OPTIMIZER, state)
        found = summarise(self._recorder.timeline())
        return ArmMemory(
            self._name,
            dist.get_rank(),
            self._parameters,
            self._buffers,
            gradients,
            optimizer,
            found.most.get(Category.GATHERED, 0),
            found.most.get(Category.REDUCED, 0),
            None if call is None else found.activations,
            found.peak,
        )

    def _step(self, call: Call | None) -> int:
        """One step; bytes of the gradients with which the optimizer stepped."""
        recorder = self._recorder
        with self._phase(Phase.FORWARD):
            if call is None:
                loss = skeleton.call(self._model)
            else:
                loss, note = call(self._model)
                self.notes |= {note: None} if note else {}
        with self._phase(Phase.BACKWARD):
            loss.backward()  # type: ignore[no-untyped-call]
            del loss
            there = (one.grad for one in self._model.parameters())
            gradients = recorder.mark(Category.GRADIENTS, [one for one in there if one is not None])
        with self._phase(Phase.CLIP):
            clip_gradients(self._model)
        with self._phase(Phase.OPTIMIZER):
            self._optimizer.step()
            self._optimizer.zero_grad()
        return gradients

    @contextmanager
    def _phase(self, phase: Phase) -> Iterator[None]:
        self._recorder.phase, self._recorder.unit = phase, ""
        yield
        self._recorder.unit = ""

    def _follow(self, path: str, unit: nn.Module) -> Iterator[Any]:
        """Hooks that tell the recorder when a unit is at work; recomputation is part of the backward."""
        recorder = self._recorder

        def enter(*_: object) -> None:
            recorder.unit = path

        def leave(_module: nn.Module, _args: object, output: object) -> None:
            if recorder.phase is not Phase.FORWARD:
                return
            recorder.unit = ""
            for leaf in tree_leaves(output):
                if isinstance(leaf, Tensor) and leaf.requires_grad:
                    leaf.register_hook(enter)  # type: ignore[no-untyped-call]

        yield unit.register_forward_pre_hook(enter, prepend=True)
        yield unit.register_forward_hook(leave)
