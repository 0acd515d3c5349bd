"""Scripts that start or end their processes by themselves, in ranks that are started and watched for them.

`torch.multiprocessing.spawn(worker, nprocs=world_size)` becomes a call of `worker` in each rank: processes of
its own would have no probes. `os._exit(0)` at a script's end is an end like any other.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

Say = Callable[[str], None]


class _Ended:
    """What `spawn(join=False)` returns of a function that has returned already."""

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        return True


def spawn_nothing(say: Say) -> None:
    """Let each rank call what it would spawn once for every rank."""
    import torch.distributed as dist
    import torch.multiprocessing

    mp: Any = torch.multiprocessing
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    original = mp.spawn

    def spawn(
        fn: Any, args: Any = (), nprocs: int = 1, join: bool = True, *more: Any, **keywords: Any
    ) -> Any:
        if nprocs != ranks or dist.is_initialized():  # processes for something else
            return original(fn, args, nprocs, join, *more, **keywords)
        say("torch.multiprocessing.spawn: each rank calls the function itself")
        fn(rank, *args)
        return None if join else _Ended()

    mp.spawn = spawn
    inner: Any = sys.modules["torch.multiprocessing.spawn"]
    inner.spawn = spawn


def heed_exit(ends: Callable[[int], None]) -> None:
    """Call `ends` with the exit code before this process leaves by `os._exit`; its children do so as ever."""
    original, mine = os._exit, os.getpid()

    def leave(status: int) -> NoReturn:
        if os.getpid() == mine:
            ends(status)
        original(status)

    os._exit = leave
