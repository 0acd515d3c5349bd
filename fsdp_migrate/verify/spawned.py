"""Scripts that start their ranks themselves, with `torch.multiprocessing.spawn`: this process is one of them.

The ranks of a verification are there already, each running the script from its start. What it would start is
called here, as the rank that this process is, and the ranks meet where the launcher says: a port that each of
them has chosen, or that is written in the script, is not the same for all, or taken.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
import torch.multiprocessing

_MEETING = ("MASTER_ADDR", "MASTER_PORT")


class Ended:
    """Stands in for the context of processes that are joined later."""

    def join(self, *_: object, **__: object) -> bool:
        """They have ended."""
        return True


def apply(say: Callable[[str], None]) -> None:
    """Replace `spawn` and `start_processes` in this process."""
    meeting = {name: os.environ[name] for name in _MEETING if name in os.environ}
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))

    def call_here(
        fn: Callable[..., object],
        args: tuple[object, ...] = (),
        nprocs: int = 1,
        join: bool = True,
        *_: object,
        **__: object,
    ) -> Ended | None:
        if nprocs != ranks:
            raise RuntimeError(
                f"the script starts {nprocs} processes by torch.multiprocessing.spawn, and verify {ranks}: "
                f"give --nproc {nprocs}"
            )
        say("torch.multiprocessing.spawn calls its function in the ranks that are there")
        _meet_at(meeting)
        fn(int(os.environ["LOCAL_RANK"]), *args)
        return None if join else Ended()

    multiprocessing: Any = torch.multiprocessing
    multiprocessing.spawn = multiprocessing.start_processes = call_here


def _meet_at(meeting: dict[str, str]) -> None:
    original: Any = dist.init_process_group

    @functools.wraps(original)
    def init_process_group(backend: Any = None, init_method: Any = None, *more: Any, **keywords: Any) -> None:
        if init_method is None or str(init_method).startswith(("tcp:", "env:")):
            os.environ.update(meeting)
            init_method = None if init_method is None else "env://"
        original(backend, init_method, *more, **keywords)

    dist.init_process_group = init_process_group
