"""Finds the models of the job, records where they start, what goes into them, and in which dtype units get
it.

A model is the outermost module that is called with gradients enabled and holds a parameter that wants one.
Effective inputs are taken from torch's global *forward* hook: it gets the arguments after every hook that may
have cast them (FSDP2 casts in a pre-forward hook, FSDP1 in the wrapper's forward).
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Iterable
from typing import Any

import torch
import xxhash
from torch import Tensor, nn
from torch.distributed import fsdp
from torch.nn.modules.module import register_module_forward_pre_hook

from fsdp_migrate.verify.model import AT_THE_END
from fsdp_migrate.verify.older_torch import autocast_dtype, register_forward_hook, tensors_and_others
from fsdp_migrate.verify.probes.answers import Take, listen
from fsdp_migrate.verify.probes.between import at_first_call
from fsdp_migrate.verify.probes.perturb import nudge
from fsdp_migrate.verify.probes.raw_bytes import raw_bytes
from fsdp_migrate.verify.probes.recorder import whole
from fsdp_migrate.verify.probes.session import Session
from fsdp_migrate.verify.probes.shards import clean_name, index_parameters, local_part, stored_weight
from fsdp_migrate.verify.probes.units import unit_bodies
from fsdp_migrate.verify.probes.wrapping import is_fsdp1, is_fsdp2, modules_of

_DIGEST_BYTES = 64 << 20
_SAMPLED = 4096
_BEAT_S = 1.0


class _Calls:
    """Follows the nesting of module calls in the main thread."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.depth = 0
        self.outermost: nn.Module | None = None
        self.began = 0.0
        self.take: Take | None = None
        self.beaten = 0.0

    def before(self, module: nn.Module, arguments: Any) -> None:
        session = self.session
        session.enter(module)
        if session.in_backward:  # recomputed; what it stops half-way never comes to `after`
            return
        self.depth += 1
        if self.depth > 1:
            return
        trains = torch.is_grad_enabled() and _wants_gradient(module)
        with session.probing() as active:
            if active and trains:
                self.outermost = module
                session.now.modules.clear()
                session.autocast = session.autocast or _autocast(arguments)
                _meet(session, module)
                at_first_call(session, module)
                session.now.inputs.append(_digest(_tensors(arguments)))
            elif active and not torch.is_grad_enabled():
                _notice(session, module)
                self.take = listen(session, module, _digest(_tensors(arguments)))
            elif active:
                _notice(session, module)
        self.began = session.clock()

    def after(self, module: nn.Module, arguments: Any, keywords: Any, output: Any) -> None:
        session = self.session
        session.leave(module)
        if session.in_backward:
            return
        self.depth = max(0, self.depth - 1)
        if not self.depth:
            self._beat()
        name = session.names.get(module)
        if name is not None and name not in session.input_dtypes:
            dtypes = {
                str(one.dtype).removeprefix("torch.")
                for one in _tensors((arguments, keywords))
                if _is_float(one)
            }
            session.input_dtypes[name] = sorted(dtypes)
        if name is not None and self.outermost is not None and not session.step and not session.now.losses:
            self._write_output(name, output)
        if self.depth == 0 and self.take is not None:
            take, self.take = self.take, None
            with session.probing() as active:
                if active:
                    take(_digest(one for one in _tensors(keywords) if not _is_float(one)), _tensors(output))
        if self.depth == 0 and module is self.outermost:
            self.outermost = None
            with session.probing() as active:
                if active:
                    session.now.outputs.append(_sampled(_tensors(output)))
            session.now.spans.append(("forward", self.began, session.clock()))
            # Keyword arguments are not shown to global pre-forward hooks; whole numbers are never cast on
            # the way.
            exact = [one for one in _tensors(keywords) if not _is_float(one)]
            if exact:
                with session.probing() as active:
                    if active:
                        session.now.inputs.append(_digest(exact))

    def _write_output(self, unit: str, output: Any) -> None:
        """Of the first forward pass: all that it rests on is what the job starts from."""
        with self.session.probing() as active:
            if active:
                self.session.recorder.event("output", unit=unit, digest=_digest(_tensors(output)))

    def _beat(self) -> None:
        """Evaluation and long accumulation are progress too."""
        if time.monotonic() - self.beaten > _BEAT_S:
            self.beaten = time.monotonic()
            self.session.alive.touch()


def attach(session: Session) -> None:
    """Follow every module call."""
    calls = _Calls(session)
    register_module_forward_pre_hook(calls.before)
    register_forward_hook(calls.after)
    _registered_methods(calls)


def _registered_methods(calls: _Calls) -> None:
    """Methods that `register_fsdp_forward_method` makes gather parameters are calls of their module too.

    Lightning's `training_step` is one: under FSDP1 it is called through the wrapper, and what it calls inside
    holds a part of the root's parameters only.
    """
    for home in (fsdp, sys.modules.get("torch.distributed._composable.fsdp")):
        original = getattr(home, "register_fsdp_forward_method", None)
        if original is not None:
            home.register_fsdp_forward_method = _followed(original, calls)  # type: ignore[union-attr]


def _followed(original: Any, calls: _Calls) -> Any:
    @functools.wraps(original)
    def register(module: nn.Module, method_name: str) -> None:
        original(module, method_name)
        method = getattr(module, method_name)
        if not is_fsdp2(module):
            return

        @functools.wraps(method)
        def called(*arguments: Any, **keywords: Any) -> Any:
            calls.before(module, arguments)
            result = method(*arguments, **keywords)
            calls.after(module, arguments, keywords, result)
            return result

        setattr(module, method_name, called)

    return register


def _autocast(arguments: Any) -> str:
    """Dtype of the autocast that is on, for the device the inputs are on; "" when it is off."""
    kinds = {one.device.type for one in _tensors(arguments)} or {"cuda", "cpu"}
    on = [dtype for kind in sorted(kinds) if (dtype := autocast_dtype(kind)) is not None]
    return str(on[0]).removeprefix("torch.") if on else ""


def _wants_gradient(module: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in module.parameters())


def _meet(session: Session, module: nn.Module) -> None:
    """Take a model in at its first call, and record its weights as they are before anything has happened."""
    inner = getattr(module, "module", None)
    if isinstance(module, torch.nn.parallel.DistributedDataParallel) and inner is not None:
        module = inner
        session.replicated = True
    if any(_holds(known, module) for known in session.models):
        return
    while session.at_first_model:
        session.at_first_model.pop()()
    session.others[:] = [other for other in session.others if not _holds(module, other)]
    session.models.append(module)
    prefix = session.prefix(module)
    for name, body in unit_bodies(module):
        session.names[body] = session.units[body] = f"{prefix}.{name}".strip(".")
    for wrapper in module.modules():
        inner = wrapper._modules["_fsdp_wrapped_module"] if is_fsdp1(wrapper) else None
        if inner is not None and inner in session.units:
            session.units[wrapper] = session.units[inner]
    index = session.index()
    mine = (
        set(index.shapes) if not prefix else {name for name in index.shapes if name.startswith(f"{prefix}.")}
    )
    session.recorder.tensors(
        0, "weight", ((slot, values) for slot, values in index.weights() if slot.name in mine)
    )
    if session.perturb_weights:
        for holder in index.holders:
            nudge(local_part(stored_weight(holder.parameter)), session.perturb_weights)
    session.recorder.event(
        "parameters",
        shapes={name: index.shapes[name] for name in sorted(mine)},
        trainable={name: index.trainable[name] for name in sorted(mine)},
        sharded={name: index.sharded[name] for name in sorted(mine)},
        tied=[list(names) for names in index.tied],
    )
    for name, why in index.unreadable.items():
        session.note(f"parameter {name}: its layout is not understood ({why})")


def _notice(session: Session, module: nn.Module) -> None:
    """Take in a model that is called without gradients: an average of the weights, a teacher."""
    known = [*session.models, *session.others]
    if any(_holds(each, module) or _holds(module, each) for each in known):
        return
    if next(module.parameters(), None) is not None:
        session.others.append(module)


def _holds(outer: nn.Module, inner: nn.Module) -> bool:
    return inner is outer or any(inner is part for part in modules_of(outer))


def write_others(session: Session, step: int, when: str = "") -> None:
    """Record the weights of models that are only called without gradients.

    Args:
        when: put behind their names.
    """
    for position, model in enumerate(session.others):
        index = index_parameters(model, f"other{position + 1}{when}")
        session.recorder.tensors(step, "weight of another model", index.weights())
        _write_buffers(session, step, model, f"other{position + 1}{when}")


def last_look(session: Session) -> None:
    """Averages are updated after the step that they follow."""
    with session.probing() as active:
        if active and session.step:
            write_others(session, session.step, AT_THE_END)


def write_buffers(session: Session, step: int) -> None:
    """Record every floating or integer buffer of every model; each rank has its own."""
    for model in session.models:
        _write_buffers(session, step, model, session.prefix(model))


def _write_buffers(session: Session, step: int, model: nn.Module, prefix: str) -> None:
    if not any(module._buffers for module in session.modules(model)):
        return
    held = [
        whole(".".join(part for part in (prefix, clean_name(name)) if part), local_part(buffer))
        for name, buffer in model.named_buffers()
        if buffer.numel()
    ]
    session.recorder.tensors(step, "buffer", held)


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tensors_and_others(tree) if isinstance(leaf, Tensor)]


def _is_float(tensor: Tensor) -> bool:
    return tensor.is_floating_point()


def _sampled(tensors: Iterable[Tensor]) -> str:
    """Hash of elements in equal distances, a few thousand of each tensor: in every step, logits are large."""
    digest = xxhash.xxh3_128()
    for tensor in tensors:
        local = local_part(tensor).reshape(-1)
        step = max(1, local.numel() // _SAMPLED)
        digest.update(raw_bytes(local[:: step | 1].contiguous().cpu()))
    return digest.hexdigest()


def _digest(tensors: Iterable[Tensor]) -> str:
    """Hash of what went into the model; of the first 64 MiB of each tensor."""
    digest = xxhash.xxh3_128()
    for tensor in tensors:
        local = local_part(tensor)
        digest.update(f"{tuple(local.shape)}{local.dtype}".encode())
        flat = local.reshape(-1)[: _DIGEST_BYTES // local.element_size()].contiguous().cpu()
        digest.update(raw_bytes(flat))
    return digest.hexdigest()
