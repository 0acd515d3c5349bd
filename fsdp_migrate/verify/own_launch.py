"""Scripts that start or end their processes by themselves, in ranks that are started and watched for them.

`torch.multiprocessing.spawn(worker, nprocs=world_size)` becomes a call of `worker` in each rank: processes of
its own would have no probes. `os._exit(0)` at a script's end is an end like any other.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

Say = Callable[[str], None]
_MEETING = ("MASTER_ADDR", "MASTER_PORT")


class _Ended:
    """What `spawn(join=False)` returns of a function that has returned already."""

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """The processes have ended."""
        return True


def spawn_nothing(say: Say) -> None:
    """Let each rank call what it would spawn once for every rank.

    The ranks then meet where the launcher says: a port that each of them has chosen, or that is written in
    the script, is not the same for all, or taken.
    """
    import torch.distributed as dist
    import torch.multiprocessing

    mp: Any = torch.multiprocessing
    meeting = {name: os.environ[name] for name in _MEETING if name in os.environ}
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    original = mp.start_processes

    def call_here(
        fn: Callable[..., object],
        args: tuple[object, ...] = (),
        nprocs: int = 1,
        join: bool = True,
        *more: Any,
        **keywords: Any,
    ) -> Any:
        if dist.is_initialized():  # processes for something else
            return original(fn, args, nprocs, join, *more, **keywords)
        if nprocs != ranks:
            raise RuntimeError(
                f"the script starts {nprocs} processes by torch.multiprocessing.spawn, and verify {ranks}: "
                f"give --nproc {nprocs}"
            )
        say("torch.multiprocessing.spawn calls its function in the ranks that are there")
        _meet_at(meeting)
        fn(int(os.environ["LOCAL_RANK"]), *args)
        return None if join else _Ended()

    inner: Any = sys.modules["torch.multiprocessing.spawn"]
    mp.spawn = mp.start_processes = inner.spawn = inner.start_processes = call_here


def _meet_at(meeting: dict[str, str]) -> None:
    import torch.distributed as dist

    original: Any = dist.init_process_group

    @functools.wraps(original)
    def init_process_group(backend: Any = None, init_method: Any = None, *more: Any, **keywords: Any) -> None:
        if init_method is None or str(init_method).startswith(("tcp:", "env:")):
            os.environ.update(meeting)
            init_method = None if init_method is None else "env://"
        original(backend, init_method, *more, **keywords)

    dist.init_process_group = init_process_group


def heed_exit(ends: Callable[[int], None]) -> None:
    """Call `ends` with the exit code before this process leaves by `os._exit`; its children do so as ever."""
    original, mine = os._exit, os.getpid()

    def leave(status: int) -> NoReturn:
        if os.getpid() == mine:
            ends(status)
        original(status)

    os._exit = leave
