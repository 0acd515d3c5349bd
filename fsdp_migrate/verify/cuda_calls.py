"""What `torch.cuda` answers in a rehearsal on CPUs: the calls that training scripts make and that fail there.

Device 0 is the only one a rank sees; memory in use and utilisation are zero, because a rehearsal measures
neither. The memory there is, which scripts divide by and choose sizes by, is the same for every rank and arm.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import torch

Say = Callable[[str], None]

_NO_MEMORY: defaultdict[str, int] = defaultdict(int)
# As much memory as an A100 has, all of it free: a choice that rests on what is left is the same every time.
_MEMORY = 80 * 2**30
# A compute capability with bfloat16, as `is_bf16_supported` answers.
_CPU = SimpleNamespace(
    name="CPU", total_memory=_MEMORY, major=8, minor=0, multi_processor_count=1, gcnArchName="", uuid=""
)
_NCCL = (2, 20, 5)
"""A release whose collectives take bfloat16, as gloo's do."""
_NOTHING = (
    "set_device",
    "synchronize",
    "init",
    "ipc_collect",
    "set_rng_state",
    "set_rng_state_all",
    "reset_peak_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_accumulated_memory_stats",
    "reset_peak_host_memory_stats",
    "reset_accumulated_host_memory_stats",
    "set_per_process_memory_fraction",
)
_ACCELERATOR = (
    "set_device_index",
    "set_device_idx",
    "synchronize",
    "set_stream",
    "empty_cache",
    "reset_peak_memory_stats",
    "reset_accumulated_memory_stats",
)
_OF_ACCELERATOR = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")
_TOLD = ("accelerate.",)
_TOLD_OF_DTYPES = frozenset({"is_torch_bf16_gpu_available", "is_torch_tf32_available"})
"""Functions of transformers without whose yes `TrainingArguments(bf16=True)` is refused."""
_TORCH = str(Path(torch.__file__).parent)
AVAILABLE = "torch.cuda.is_available() answers"
"""How it begins what it says of its answer to scripts."""
_ZERO = ("utilization", "memory_usage", "device_memory_used", "temperature", "power_draw", "clock_rate")


class Event:
    """Stands in for `torch.cuda.Event`: wall-clock times."""

    def __init__(self, *_: object, **__: object) -> None:
        self.at = 0.0

    def record(self, *_: object) -> None:
        self.at = time.perf_counter()

    def elapsed_time(self, end: Event) -> float:
        return (end.at - self.at) * 1e3

    def query(self) -> bool:
        return True

    def synchronize(self) -> None: ...

    def wait(self, *_: object) -> None: ...


class Stream:
    """Stands in for `torch.cuda.Stream`: work is done when it is asked for; nothing has to wait."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def query(self) -> bool:
        return True

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record()
        return event

    def synchronize(self) -> None: ...

    def wait_event(self, *_: object) -> None: ...

    def wait_stream(self, *_: object) -> None: ...


_STREAM = Stream()


class Device(contextlib.AbstractContextManager["Device"]):
    """Stands in for `torch.cuda.device` and `device_of`: there is one device."""

    def __init__(self, *_: object) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def apply(say: Say, *, as_gpu: bool = False) -> None:
    """Replace the calls; each says once more what it answers when a script makes it.

    Args:
        as_gpu: `torch.cuda.is_available()` answers scripts with True.
    """
    answers: dict[str, object] = {
        **dict.fromkeys(_NOTHING),
        **dict.fromkeys(_ZERO, 0),
        "current_device": 0,
        "device_count": int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        "is_bf16_supported": True,
        "is_current_stream_capturing": False,
        "initial_seed": 0,
        "get_device_name": _CPU.name,
        "get_device_properties": _CPU,
        "get_device_capability": (_CPU.major, _CPU.minor),
        "mem_get_info": (_MEMORY, _MEMORY),
        "memory_stats": _NO_MEMORY,
        "memory_summary": "",
        "memory_snapshot": [],
        "get_rng_state": torch.empty(0, dtype=torch.uint8),
        "get_rng_state_all": [],
        "current_stream": _STREAM,
        "default_stream": _STREAM,
        "can_device_access_peer": False,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, _stand_in(f"cuda.{name}", answer, say))
    torch.cuda.device = torch.cuda.device_of = Device  # type: ignore[misc,assignment]
    torch.cuda.default_generators = (torch.default_generator,) * torch.cuda.device_count()  # type: ignore[assignment]
    _accelerator(say)
    _tools(say)
    torch.cuda.is_available = _availability(say, as_gpu)
    torch.cuda.Event = Event  # type: ignore[misc,assignment]
    torch.cuda.Stream = Stream  # type: ignore[misc,assignment]
    torch.cuda.stream = contextlib.nullcontext  # type: ignore[assignment]


def _accelerator(say: Say) -> None:
    """`torch.accelerator` (torch 2.6 and later) tells that there is none, and fails where one is steered."""
    accelerator = getattr(torch, "accelerator", None)
    index = dict.fromkeys(("current_device_index", "current_device_idx"), 0)
    answers: dict[str, object] = {**dict.fromkeys(_ACCELERATOR), **dict.fromkeys(_OF_ACCELERATOR, 0), **index}
    for name, answer in {**answers, "current_stream": _STREAM, "memory_stats": _NO_MEMORY}.items():
        if hasattr(accelerator, name):
            setattr(accelerator, name, _stand_in(f"accelerator.{name}", answer, say))


def _tools(say: Say) -> None:
    """Marks for profilers, the allocator's history, NCCL's version."""
    for name, answer in (
        ("range_push", 0),
        ("range_pop", 0),
        ("range_start", 0),
        ("range_end", None),
        ("mark", None),
    ):
        setattr(torch.cuda.nvtx, name, _stand_in(f"cuda.nvtx.{name}", answer, say))
    for name in ("_record_memory_history", "_dump_snapshot"):
        setattr(torch.cuda.memory, name, _stand_in(f"cuda.memory.{name}", None, say))
    torch.cuda.nccl.version = _stand_in("cuda.nccl.version", _NCCL, say)


def _availability(say: Say, as_gpu: bool) -> Callable[[], bool]:
    def is_available() -> bool:
        """Libraries that shard only where they find a GPU are told of one; scripts are told the truth, unless
        a person wants it otherwise, and other libraries in any case."""
        asking = sys._getframe(1)
        library = str(asking.f_globals.get("__name__", ""))
        if library.startswith(_TOLD) or asking.f_code.co_name in _TOLD_OF_DTYPES:
            return True
        path = asking.f_code.co_filename
        if "site-packages" in path or path.startswith((_TORCH, "<frozen")):
            return False
        say(f"{AVAILABLE} {as_gpu}")
        return as_gpu

    return is_available


def _stand_in(name: str, answer: object, say: Say) -> Callable[..., object]:
    does = "does nothing" if answer is None else f"answers {_shown(answer)}"

    def call(*_: object, **__: object) -> object:
        say(f"torch.{name}() {does}")
        return answer

    return call


def _shown(answer: object) -> str:
    """An answer in words, where it is an object without them."""
    if isinstance(answer, torch.Tensor | Stream):
        return "a stand-in"
    return {id(_NO_MEMORY): "zeros", id(_CPU): "those of a CPU"}.get(id(answer), repr(answer))
