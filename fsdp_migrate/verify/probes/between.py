"""What else happens to a model and its gradients: `zero_grad`, loading, writes outside the optimizer, random
numbers.

Equal gradients and equal optimizers give equal weights; where they do not, one of these is the reason.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import torch
import xxhash
from torch import Tensor, nn
from torch.optim import Optimizer

from fsdp_migrate.verify.probes.raw_bytes import raw_bytes
from fsdp_migrate.verify.probes.session import Session
from fsdp_migrate.verify.probes.shards import clean_name, local_part, stored_weight

_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def attach(session: Session) -> None:
    """Wrap `zero_grad` and `load_state_dict` of modules and optimizers."""
    for owner in (nn.Module, Optimizer):
        _watch(owner, "zero_grad", lambda *_: _zeroed(session))
    _watch(nn.Module, "load_state_dict", lambda result, _: _loaded(session, "model", result))
    _watch(Optimizer, "load_state_dict", lambda result, _: _loaded(session, "optimizer", result))


def _watch(owner: Any, name: str, then: Callable[[Any, Any], None]) -> None:
    """Call `then(result, self)` after every outermost call of a method."""
    original, nesting = getattr(owner, name), [0]

    @functools.wraps(original)
    def wrapper(self: Any, *arguments: Any, **keywords: Any) -> Any:
        nesting[0] += 1
        try:
            result = original(self, *arguments, **keywords)
        finally:
            nesting[0] -= 1
        if not nesting[0]:
            then(result, self)
        return result

    setattr(owner, name, wrapper)


def _zeroed(session: Session) -> None:
    if session.open and not session.probing_depth:
        session.now.zeroed.append(len(session.now.reductions))


def _loaded(session: Session, what: str, result: Any) -> None:
    if not session.open or session.probing_depth:
        return
    unmatched = [*getattr(result, "missing_keys", ()), *getattr(result, "unexpected_keys", ())]
    session.recorder.event("load", step=session.step, what=what, unmatched=len(unmatched))


def remember_weights(session: Session) -> None:
    """Keep a checksum of every weight, as the optimizer leaves them."""
    session.checksums = _checksums(session)


def at_first_call(session: Session, model: nn.Module) -> None:
    """Before the first forward pass of a step: what is not as the last step left it."""
    now = session.now
    if now.called:
        return
    now.called = True
    now.random = random_state()
    if not all(each.training for each in session.modules(model)):
        evaluating = {clean_name(name) for name, each in model.named_modules() if not each.training}
        now.evaluating = len(evaluating)
    if session.checksums:
        current = _checksums(session)
        before = session.checksums
        now.rewritten = sorted(name for name in current if before.get(name) not in (None, current[name]))


def _checksums(session: Session) -> dict[str, int]:
    """Digests of every local part; ranks that hold nothing of a weight have no entry."""
    names: list[str] = []
    parts: list[Tensor] = []
    for holder in session.index().holders:
        local = local_part(stored_weight(holder.parameter))
        if local.numel() == holder.local_numel:
            for slot in holder.slots:
                names.append(slot.name)
                parts.append(slot.of(local).contiguous())
    return dict(zip(names, _digests(parts), strict=True))


def _digests(parts: list[Tensor]) -> list[int]:
    """Hashes on the CPU, where reading bytes is faster than adding them up; sums of the bits elsewhere."""
    found = {at: xxhash.xxh3_64_intdigest(raw_bytes(parts[at])) for at in _places(parts, on_cpu=True)}
    away = _places(parts, on_cpu=False)
    for _, some in itertools.groupby(away, lambda at: parts[at].device):
        places = list(some)
        sums = [parts[at].view(_bits(parts[at])).sum(dtype=torch.int64) for at in places]
        found |= dict(zip(places, torch.stack(sums).tolist(), strict=True))
    return [found[at] for at in range(len(parts))]


def _places(parts: list[Tensor], *, on_cpu: bool) -> list[int]:
    return [at for at, part in enumerate(parts) if (part.device.type == "cpu") is on_cpu]


def _bits(part: Tensor) -> torch.dtype:
    return _BITS.get(part.element_size(), torch.int64)


def random_state() -> str:
    """Digest of the generators that dropout and its like draw from."""
    digest = xxhash.xxh3_64(torch.get_rng_state().numpy().tobytes())
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        digest.update(torch.cuda.get_rng_state().numpy().tobytes())
    return digest.hexdigest()
