"""Runs a script on every rank of a launch, forked as `verify` forks them, and waits for all."""

from __future__ import annotations

import time
from pathlib import Path

from fsdp_migrate.verify.environment import free_port, rank_environment
from fsdp_migrate.verify.launcher import RankServer


def run_ranks(
    server: RankServer, ranks: int, script: Path, arguments: list[str], folder: Path, limit_s: float
) -> None:
    """Run a script on every rank to its end.

    Args:
        folder: of the ranks' output.

    Raises:
        RuntimeError: a rank failed or did not end within the limit; quotes what it wrote last.
    """
    port = free_port()
    program = {"script": str(script), "arguments": arguments, "cwd": str(folder)}
    jobs = [
        {
            "rank": rank,
            "environment": rank_environment(rank, ranks, port),
            "stdout": str(folder / f"out{rank}"),
            "stderr": str(folder / f"err{rank}"),
            "program": program,
        }
        for rank in range(ranks)
    ]
    server.command(do="launch", ranks=jobs)
    left, until = set(range(ranks)), time.monotonic() + limit_s
    while left and server.alive and time.monotonic() < until:
        for event in server.events(0.1):
            rank = int(str(event["rank"]))
            if event["code"] != 0:
                said = (folder / f"err{rank}").read_text(encoding="utf-8", errors="replace")
                raise RuntimeError(f"rank {rank} ended with {event['code']}:\n{said[-3000:]}")
            left.discard(rank)
    if left:
        raise RuntimeError(f"rank {min(left)} did not end within {limit_s:g} s")
