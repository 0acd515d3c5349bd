"""Records every optimizer step: gradients and how they were clipped, weights, optimizer state, settings."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from fsdp_migrate.verify.model import CLIPPED
from fsdp_migrate.verify.older_torch import keep_optimizer_hooks
from fsdp_migrate.verify.probes.between import remember_weights
from fsdp_migrate.verify.probes.clipping import norm_words
from fsdp_migrate.verify.probes.models import write_buffers, write_others
from fsdp_migrate.verify.probes.recorder import Kept
from fsdp_migrate.verify.probes.session import Session, StepState
from fsdp_migrate.verify.probes.shards import ParameterIndex, index_parameters, local_part
from fsdp_migrate.verify.probes.spans import span_words
from fsdp_migrate.verify.probes.states import write_states
from fsdp_migrate.verify.probes.units import checkpointed_modules, describe_units, kind_of
from fsdp_migrate.verify.schedule import is_due

_PRINTED_FOREIGN = 5
_STATE_DICT_MODULE = "torch.distributed.checkpoint.state_dict"


def attach(session: Session) -> None:
    """Register torch's global optimizer hooks."""
    keep_optimizer_hooks()
    nesting = [0]  # an optimizer may wrap another one, whose step it calls
    began = [0.0]
    trains = [True]  # whether the outermost step is one of the training

    def begin(optimizer: Optimizer) -> None:
        with session.probing() as active:
            if active:
                _before(session, optimizer)

    def before(optimizer: Optimizer, arguments: Any, keywords: Any) -> Any:
        nesting[0] += 1
        if nesting[0] > 1:
            return None
        trains[0] = not _only_makes_state()
        if not trains[0]:
            return None
        if session.ending:  # no backward pass was seen
            session.on_last_step()
        closed = _with_closure(arguments, keywords, lambda: begin(optimizer))
        if closed is None:
            begin(optimizer)
        began[0] = session.clock()
        return closed

    def after(optimizer: Optimizer, *_: Any) -> None:
        nesting[0] -= 1
        if nesting[0] or not trains[0]:
            return
        session.now.spans.append(("optimizer", began[0], session.clock()))
        with session.probing() as active:
            if active:
                _after(session, optimizer)
        if active:
            session.now = StepState()
            session.step_done()
            session.ending = session.step >= session.steps

    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(after)


def _with_closure(arguments: Any, keywords: Any, then: Callable[[], None]) -> Any:
    """The call's arguments, their closure made to call `then` when it is first done; `None` without one.

    A closure makes the forward and backward pass inside `step` (Lightning hands one to every optimizer), so
    that gradients are there only after it.
    """
    closure = keywords.get("closure") or (arguments[1] if len(arguments) > 1 else None)
    if not callable(closure):
        return None
    done = [False]

    def wrapper() -> Any:
        result = closure()
        if not done[0]:
            done[0] = True
            then()
        return result

    if "closure" in keywords:
        return arguments, {**keywords, "closure": wrapper}
    return (arguments[0], wrapper, *arguments[2:]), keywords


def _only_makes_state() -> bool:
    """Whether this step is made by torch's distributed state-dict functions.

    `torch/distributed/checkpoint/state_dict.py` (`_init_optim_state`) steps an optimizer without state once,
    with zero gradients and a learning rate of 0, so that there is a state to load into or to save.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == _STATE_DICT_MODULE:
            return True
        frame = frame.f_back
    return False


def _before(session: Session, optimizer: Optimizer) -> None:
    session.step += 1
    session.now.seconds = time.perf_counter() - session.now.began - session.now.probe_seconds
    index = session.index()
    _describe(session)
    if id(optimizer) not in session.optimizers:
        session.optimizers[id(optimizer)] = len(session.optimizers)
        write_states(session, optimizer, index, 0)  # loaded: before its first step it has no other
    _describe_optimizer(session, optimizer, index)
    if not session.now.gradients and not session.has_passed:
        session.note("gradients before clipping: the job does not call backward() on a tensor")
    kept = _of_use(session.now.gradients, index, optimizer)
    session.recorder.write(session.step, "gradient", kept)
    if kept and not _is_due(session, index, session.step):
        return
    used = _of_use(session.recorder.taken(index.gradients(), copy=False), index, optimizer)
    if session.now.clips or not _same(kept, used):
        session.recorder.write(session.step, CLIPPED, used)


def _of_use(kept: list[Kept], index: ParameterIndex, optimizer: Optimizer) -> list[Kept]:
    """Without what frozen parameters have left of earlier steps and this optimizer does not take.

    A model that is frozen while another one is trained keeps its last gradients under FSDP2; FSDP1 lets go of
    them with its next forward pass. Nothing is computed from them.
    """
    if all(index.trainable.values()):
        return kept
    held = {
        slot.name
        for group in optimizer.param_groups
        for parameter in group["params"]
        if (holder := index.by_id.get(id(parameter))) is not None
        for slot in holder.slots
    }
    return [each for each in kept if index.trainable.get(each.slot.name, True) or each.slot.name in held]


def _is_due(session: Session, index: ParameterIndex, step: int) -> bool:
    return is_due(step, index.elements, int(os.environ.get("WORLD_SIZE", "1")))


def _same(left: list[Kept], right: list[Kept]) -> bool:
    return len(left) == len(right) and all(a.same(b) for a, b in zip(left, right, strict=True))


def _describe(session: Session) -> None:
    """Units and input dtypes, known once a step of the model has run; each model once."""
    _describe_others(session)
    new = session.models[session.described :]
    if not new and session.step > 1:
        return
    session.described = len(session.models)
    for model in new:
        prefix = session.prefix(model)
        units = describe_units(model)
        for unit in units:
            unit["name"] = f"{prefix}.{unit['name']}".strip(".")
        kind = kind_of(model)
        if kind == "not sharded" and session.replicated:
            kind = "DDP"
        names = checkpointed_modules(model, prefix)
        session.recorder.event("model", prefix=prefix, kind=kind, units=units, checkpointing=names)
    session.recorder.event("input_dtypes", dtypes=session.input_dtypes, autocast=session.autocast)
    if _compiles():
        session.recorder.event("compiled")
    if not session.models:
        session.note("the model: no module with trainable parameters was called with gradients enabled")


def _compiles() -> bool:
    """Whether a compiler has made kernels of a part of the job; running graphs as they are makes none."""
    dynamo: Any = sys.modules.get("torch._dynamo.utils")
    return dynamo is not None and dynamo.counters["aot_autograd"]["total"] > 0


def _describe_others(session: Session) -> None:
    """Units of models that are only called without gradients: a teacher has its own precision."""
    for position, model in enumerate(session.others, 1):
        if id(model) in session.described_others:
            continue
        session.described_others.add(id(model))
        units = describe_units(model)
        for unit in units:
            unit["name"] = f"other{position}.{unit['name']}".strip(".")
        session.recorder.event("model", prefix=f"other{position}", kind=kind_of(model), units=units)


def _describe_optimizer(session: Session, optimizer: Optimizer, index: ParameterIndex) -> None:
    """What the optimizer holds: names and hyper-parameters per group, and parameters that no model has."""
    groups: list[dict[str, object]] = []
    foreign: list[list[int]] = []
    of_others = 0
    for group in optimizer.param_groups:
        names: set[str] = set()
        for parameter in group["params"]:
            holder = index.by_id.get(id(parameter))
            if holder is None:
                foreign.append(list(parameter.shape))
                of_others += any(id(parameter) in index_parameters(each).by_id for each in session.others)
            else:
                names |= {slot.name for slot in holder.slots}
        groups.append({"names": sorted(names), "settings": _settings(group)})
    session.recorder.event(
        "optimizer",
        step=session.step,
        number=session.optimizers[id(optimizer)],
        kind=type(optimizer).__name__,
        groups=groups,
        foreign=len(foreign),
        of_others=of_others,
        foreign_shapes=foreign[:_PRINTED_FOREIGN],
    )


def _settings(group: dict[str, Any]) -> dict[str, float | bool | str]:
    found: dict[str, float | bool | str] = {}
    for key, value in group.items():
        if key in ("params", "param_names", "foreach", "fused", "capturable", "differentiable"):
            continue
        if isinstance(value, Tensor) and value.numel() == 1:
            found[key] = float(local_part(value))
        elif isinstance(value, bool | int | float):
            found[key] = value
        elif isinstance(value, tuple | list):
            found[key] = repr([float(one) if isinstance(one, int | float) else repr(one) for one in value])
    return found


def _after(session: Session, optimizer: Optimizer) -> None:
    index = session.index()
    session.recorder.tensors(session.step, "weight", index.weights())
    if _is_due(session, index, session.step + 1):
        remember_weights(session)
    else:
        session.checksums.clear()  # reading all weights twice a step costs a large model too much
    write_others(session, session.step)
    write_buffers(session, session.step)
    due = _is_due(session, index, session.step)
    write_states(session, optimizer, index, session.step, only_counters=not due)
    now = session.now
    session.recorder.event(
        "step",
        step=session.step,
        losses=[float(loss) for loss in now.losses],
        scales=[float(scale) for *_, scale in now.scaled],
        unscaled=[float(loss) for loss in now.unscaled] if now.scaled else [],
        reductions=now.reductions,
        reduce_dtypes=sorted(now.reduce_dtypes),
        inputs=now.inputs,
        outputs=now.outputs,
        clips=[{**clip, "norm": norm_words(clip["norm"])} for clip in now.clips],
        collectives=dict(now.collectives),
        bytes=dict(now.bytes),
        zeroed=now.zeroed,
        random=now.random,
        rewritten=now.rewritten,
        evaluating=now.evaluating,
        sparse=not due,
        spans=span_words(now.spans),
        seconds=now.seconds,
        probe_seconds=now.probe_seconds,
    )
