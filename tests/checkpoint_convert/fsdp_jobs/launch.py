"""Starts a job's ranks and waits for them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def launch(module: str, world_size: int, *arguments: object, timeout_s: float = 150) -> None:
    """Run `python -m module arguments` on every rank; fails with the output of the first rank that failed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(world_size),
    }
    command = [sys.executable, "-m", module, *map(str, arguments)]
    ranks = [
        subprocess.Popen(
            command,
            env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(world_size)
    ]
    try:
        outputs = [process.communicate(timeout=timeout_s)[0] for process in ranks]
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    for process, output in zip(ranks, outputs, strict=True):
        assert process.returncode == 0, output[-4000:]
