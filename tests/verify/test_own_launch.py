"""`torch.multiprocessing.spawn` of a script starts the job's ranks, or processes for something else."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch.distributed as dist
import torch.multiprocessing

from fsdp_migrate.verify import own_launch


def test_only_what_starts_the_ranks_is_called_in_them(monkeypatch: pytest.MonkeyPatch) -> None:
    mp: Any = torch.multiprocessing
    started: list[int] = []
    called: list[tuple[object, ...]] = []
    said: list[str] = []
    for home in (mp, sys.modules["torch.multiprocessing.spawn"]):
        for name in ("spawn", "start_processes"):
            monkeypatch.setattr(home, name, lambda fn, args=(), nprocs=1, join=True: started.append(nprocs))
    monkeypatch.setattr(dist, "init_process_group", dist.init_process_group)
    for name, value in (("LOCAL_WORLD_SIZE", "2"), ("LOCAL_RANK", "1")):
        monkeypatch.setenv(name, value)
    own_launch.spawn_nothing(said.append)
    with pytest.raises(RuntimeError, match="give --nproc 3"):
        mp.spawn(print, nprocs=3)
    assert mp.spawn(lambda *given: called.append(given), ("a",), 2) is None
    assert mp.start_processes(lambda *given: called.append(given), nprocs=2, join=False).join()
    assert called == [(1, "a"), (1,)] and not started and len(said) == 2
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:  # loaders, evaluators: the ranks are there already
        mp.spawn(lambda *given: called.append(given), nprocs=2)
        mp.spawn(lambda *given: called.append(given), (), 3)
    finally:
        dist.destroy_process_group()
    assert started == [2, 3] and len(called) == 2
