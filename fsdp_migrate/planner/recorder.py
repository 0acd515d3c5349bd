"""Follows the memory of tensors, real or fake: when a storage is made, resized and freed, and what it is for.

Every operation passes a dispatch mode; FSDP frees and allocates gathered parameters by
`torch.UntypedStorage.resize_`, which passes none and is therefore watched beside it. torch's own
`torch.distributed._tools.MemTracker` watches the same two, but fails on FSDP1 with use_orig_params, takes
several times as long, and decides what a storage is for when it is made; here all that becomes of it tells.

Source: `torch/distributed/_tools/mem_tracker.py` for the two things to watch;
`_fully_shard/_fsdp_collectives.py` and `fsdp/_runtime_utils.py` for the operations that tell roles.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from fsdp_migrate.planner.model import Category, Phase
from fsdp_migrate.planner.timeline import Event, Timeline

_ROLES = {
    "allgather": Category.GATHERED,
    "splitwithsizescopy": Category.GATHERED,  # FSDP2 copies what was gathered into parameters
    "reducescatter": Category.REDUCED,
    "allreduce": Category.REDUCED,
    "chunkcat": Category.REDUCED,  # FSDP2 copies unreduced gradients into one buffer
}


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that keeps a `Timeline`; `phase` and `unit` are set from outside.

    Args:
        fake: whether fake tensors count, or real ones: DTensor asks fake tensors for shapes in real jobs.
    """

    def __init__(self, *, fake: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.phase = Phase.FORWARD
        self.unit = ""
        self._fake = fake
        self._live: dict[int, tuple[int, int, Any]] = {}
        self._serial = 0
        self._events: list[Event] = []
        self._before: dict[int, int] = {}
        self._roles: dict[int, Category] = {}

    def begin(self) -> None:
        """Start the timeline anew from what is alive now."""
        self._events = []
        self._before = {serial: size for serial, size, _ in self._live.values()}

    def timeline(self) -> Timeline:
        """What happened since `begin`."""
        return Timeline(self._before, tuple(self._events), dict(self._roles))

    def mark(self, role: Category, tensors: Iterable[Tensor]) -> int:
        """Say what tensors are for; the bytes of their storages, each once."""
        seen: dict[int, int] = {}
        for tensor in tensors:
            local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
            serial = self._note(local.untyped_storage())
            self._roles[serial] = role
            seen[serial] = local.untyped_storage().nbytes()
        return sum(seen.values())

    def allocated(self) -> int:
        """Bytes that are alive."""
        return sum(size for _, size, _ in self._live.values())

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Record what happens inside."""
        original: Any = torch.UntypedStorage.resize_

        def resize_(storage: torch.UntypedStorage, size: int) -> Any:
            done = original(storage, size)
            serial = self._live.get(id(storage))
            if serial is not None:
                self._note(storage)
                self._roles.setdefault(serial[0], Category.GATHERED)  # nothing else is resized in a step
            return done

        torch.UntypedStorage.resize_ = resize_  # type: ignore[method-assign,assignment]
        try:
            with self:
                yield
        finally:
            torch.UntypedStorage.resize_ = original  # type: ignore[method-assign]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # it comes back with the local tensors
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        for tensor in self._counted(out):
            self._note(tensor.untyped_storage())
        role = _role(func)
        if role is not None:
            for tensor in self._counted((args, kwargs, out)):
                self._roles.setdefault(self._note(tensor.untyped_storage()), role)
        return out

    def _counted(self, values: object) -> Iterator[Tensor]:
        for value in tree_iter(values):
            if isinstance(value, Tensor) and isinstance(value, FakeTensor) is self._fake:
                yield value

    def _note(self, storage: torch.UntypedStorage) -> int:
        """Count a storage as large as it is now; its serial number."""
        key, size = id(storage), storage.nbytes()
        if key not in self._live:
            self._live[key] = (self._serial, 0, weakref.ref(storage, self._forget(key)))
            self._serial += 1
        serial, before, reference = self._live[key]
        self._live[key] = (serial, size, reference)
        self._event(serial, size - before)
        return serial

    def _forget(self, key: int) -> Callable[[object], None]:
        def gone(_: object) -> None:
            serial, size, _ = self._live.pop(key)
            self._event(serial, -size)

        return gone

    def _event(self, serial: int, delta: int) -> None:
        if delta:
            self._events.append(Event(serial, delta, self.phase, self.unit))


def _role(func: Any) -> Category | None:
    name = func.name().partition("::")[2].partition(".")[0].replace("_", "")
    return next((role for word, role in _ROLES.items() if word in name), None)
