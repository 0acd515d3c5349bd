"""Times steps and phases, memory and tokens of a job that is run for its speed; writes a profiler trace.

Attached instead of the probes that record tensors, which would disturb what is measured. A step ends with
`optimizer.step()`; its phases are forward, backward, and the optimizer with what lies between.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from fsdp_migrate.verify.older_torch import tensors_and_others
from fsdp_migrate.verify.probes import collectives
from fsdp_migrate.verify.probes.session import Session, StepState
from fsdp_migrate.verify.probes.spans import span_words
from fsdp_migrate.verify.spec import PHASE, TRACE, TRACED_STEPS

_NAMES = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "heads"),
    "width": ("hidden_size", "n_embd", "dim", "width"),
}


@dataclass
class _Clock:
    """Where the job is, and what was measured of the step so far."""

    session: Session
    trace: bool
    phase: str = ""
    since: float = 0.0
    memory: dict[str, dict[str, int]] = field(default_factory=dict)
    began: float = 0.0
    tokens: int = 0
    sequence: int = 0
    profiler: Any = None
    annotation: Any = None

    def enter(self, phase: str) -> None:
        """A phase begins, and the one before it ends."""
        if phase == self.phase or not self.session.open:
            return
        if torch.cuda.is_available():
            if self.phase:
                known = self.memory.setdefault(self.phase, {"allocated": 0, "reserved": 0})
                known["allocated"] = max(known["allocated"], torch.cuda.max_memory_allocated())
                known["reserved"] = max(known["reserved"], torch.cuda.max_memory_reserved())
            torch.cuda.reset_peak_memory_stats()
        now = self.session.clock()
        if self.phase:
            self.session.now.spans.append((self.phase, self.since, now))
        if self.annotation is not None:
            self.annotation.__exit__(None, None, None)
        self.annotation = None
        if phase and self.profiler is not None:
            self.annotation = torch.profiler.record_function(f"{PHASE}{phase}")
            self.annotation.__enter__()
        self.phase, self.since = phase, now


def attach(session: Session, *, trace: bool) -> None:
    """Attach to this process.

    Args:
        trace: write the profiler's trace of the last steps beside the record.
    """
    clock = _Clock(session, trace)
    collectives.attach(session)
    register_module_forward_pre_hook(lambda module, arguments: _called(clock, module, arguments))
    _watch_backward(clock)
    register_optimizer_step_pre_hook(lambda *_: clock.enter("optimizer"))
    register_optimizer_step_post_hook(lambda optimizer, *_: _stepped(clock, optimizer))


def _called(clock: _Clock, module: nn.Module, arguments: Any) -> None:
    session = clock.session
    if session.in_backward or not session.open or not torch.is_grad_enabled():
        return
    if not any(module is known for known in session.models):
        if any(module is part for known in session.models for part in known.modules()):
            return
        if not any(parameter.requires_grad for parameter in module.parameters()):
            return
        _describe(session, module)
    clock.enter("forward")
    tokens = _token_ids(arguments)
    if tokens is not None:
        clock.tokens += tokens.numel()
        clock.sequence = tokens.shape[1]


def _describe(session: Session, module: nn.Module) -> None:
    session.models.append(module)
    config = next(
        (each.config for each in module.modules() if getattr(each, "config", None) is not None), None
    )
    values = {
        key: next((int(found) for name in names if isinstance(found := _of(config, name), int)), 0)
        for key, names in _NAMES.items()
    }
    embedded = {id(each.weight): each.weight for each in module.modules() if isinstance(each, nn.Embedding)}
    session.recorder.event(
        "performance_model",
        numel=session.index_numel(),
        embedding=sum(math.prod(weight.shape) for weight in embedded.values()),
        chip=torch.cuda.get_device_name() if torch.cuda.is_available() else "",
        **values,
    )


def _of(config: Any, name: str) -> object:
    return config.get(name) if isinstance(config, dict) else getattr(config, name, None)


def _token_ids(arguments: Any) -> Tensor | None:
    """The first whole-number tensor of two dimensions, as token ids are."""
    for leaf in tensors_and_others(arguments):
        if isinstance(leaf, Tensor) and not leaf.is_floating_point() and leaf.dim() == 2:
            return leaf
    return None


def _watch_backward(clock: _Clock) -> None:
    original = torch.autograd.backward

    def backward(*arguments: Any, **keywords: Any) -> None:
        session = clock.session
        clock.enter("backward")
        session.in_backward += 1
        try:
            original(*arguments, **keywords)
        finally:
            session.in_backward -= 1

    torch.autograd.backward = backward


def _stepped(clock: _Clock, optimizer: Optimizer) -> None:
    session = clock.session
    if not session.open:
        return
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    clock.enter("")
    now = time.perf_counter()
    session.step += 1
    session.recorder.event(
        "performance",
        step=session.step,
        seconds=now - clock.began if clock.began else None,
        tokens=clock.tokens,
        memory=clock.memory,
        sequence=clock.sequence,
        traced=clock.profiler is not None,
        collectives=dict(session.now.collectives),
        bytes=dict(session.now.bytes),
        spans=span_words(session.now.spans),
    )
    session.now = StepState()
    clock.tokens, clock.memory = 0, {}
    session.step_done()
    _trace(clock)
    if session.step >= session.steps:
        session.on_last_step()
    clock.began = time.perf_counter()


def _trace(clock: _Clock) -> None:
    """Trace the steps after those that are timed, so that the profiler slows none of them."""
    if not clock.trace:
        return
    if clock.session.step == clock.session.steps - TRACED_STEPS:
        clock.profiler = torch.profiler.profile()
        clock.profiler.__enter__()
    elif clock.session.step == clock.session.steps and clock.profiler is not None:
        clock.profiler.__exit__(None, None, None)
        clock.profiler.export_chrome_trace(str(clock.session.recorder.folder / TRACE))
        clock.profiler = None
