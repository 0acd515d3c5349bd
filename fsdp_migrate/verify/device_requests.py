"""Where a script names a GPU outside of a tensor's arguments: `torch.load`, generators, the default device.

Part of a rehearsal on CPUs. `OnCpu` sees the functions of torch that take tensors or give them, in the thread
that entered it; here are the others, and the other threads (torch 2.1 to 2.14).
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

Say = Callable[[str], None]
ToCpu = Callable[[Any], Any]

_TENSOR_TYPES = ("Float", "Double", "Half", "BFloat16", "Byte", "Char", "Short", "Int", "Long", "Bool")


def apply(to_cpu: ToCpu, mode: AbstractContextManager[Any], say: Say) -> None:
    """Patch this process.

    Args:
        to_cpu: a device as a script names it, replaced by the CPU where it is an accelerator.
        mode: entered in every thread that is started from now on; torch keeps such modes by thread.
    """
    _load(to_cpu, say)
    _generators(to_cpu)
    _default_device(to_cpu, say)
    _threads(mode)
    for name in _TENSOR_TYPES:
        setattr(torch.cuda, f"{name}Tensor", getattr(torch, f"{name}Tensor"))
    torch.Tensor.record_stream = lambda *_: None  # type: ignore[method-assign]


def _load(to_cpu: ToCpu, say: Say) -> None:
    original = torch.load

    @functools.wraps(original)
    def load(file: Any, map_location: Any = None, *arguments: Any, **keywords: Any) -> Any:
        if isinstance(map_location, dict):
            map_location = {source: to_cpu(target) for source, target in map_location.items()}
        elif not callable(map_location):
            # A file that was written on GPUs asks for them where the script names no place.
            map_location = to_cpu(map_location) if map_location is not None else "cpu"
        return original(file, map_location, *arguments, **keywords)

    def leave(storage: Any, *_: object, **__: object) -> Any:
        say("storage.cuda() leaves the storage on the CPU")
        return storage

    torch.load = load  # type: ignore[assignment]
    for kind in (torch.UntypedStorage, torch.TypedStorage):
        kind.cuda = leave  # type: ignore[assignment]


def _generators(to_cpu: ToCpu) -> None:
    original: Any = torch.Generator

    class _Kind(type(original)):  # type: ignore[misc]
        """Every generator of torch is one of these."""

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original)

    class Generator(original, metaclass=_Kind):  # type: ignore[misc]
        """`torch.Generator` of a CPU, whatever device is asked for."""

        def __new__(cls, device: Any = "cpu") -> Any:
            return original.__new__(cls, to_cpu(device))

    torch.Generator = Generator  # type: ignore[misc]


def _default_device(to_cpu: ToCpu, say: Say) -> None:
    device, tensor_type = torch.set_default_device, torch.set_default_tensor_type

    @functools.wraps(device)
    def set_default_device(wanted: Any) -> None:
        device(to_cpu(wanted))

    @functools.wraps(tensor_type)
    def set_default_tensor_type(wanted: Any) -> None:
        if isinstance(wanted, str) and "cuda." in wanted:
            say("default tensor type cuda -> cpu")
            wanted = wanted.replace("cuda.", "")
        tensor_type(wanted)

    torch.set_default_device = set_default_device  # type: ignore[assignment]
    torch.set_default_tensor_type = set_default_tensor_type


def _threads(mode: AbstractContextManager[Any]) -> None:
    """Loaders that fetch the next batch, writers of checkpoints; a class of threads may have a `run`."""
    original = threading.Thread.start

    @functools.wraps(original)
    def start(self: threading.Thread) -> None:
        run = self.run

        def within() -> None:
            with mode:
                run()

        self.run = within  # type: ignore[method-assign]
        original(self)

    threading.Thread.start = start  # type: ignore[method-assign]
