"""Two of torch's elastic agents on this machine, each started as on a machine of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bench import PROJECT

from fsdp_migrate.verify.agent import exit_codes
from fsdp_migrate.verify.environment import free_port

ROOT = Path(__file__).parents[2]
TABLE = """
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
Failures:
[1]:
  rank      : 2 (local_rank: 1)
  exitcode  : -15 (pid: 12)
Root Cause (first observed failure):
[0]:
  time      : 2026-01-01_00:00:00
  host      : localhost
  rank      : 1 (local_rank: 0)
  exitcode  : -9 (pid: 11)  (SIGKILL)
"""


def test_exit_codes_are_read_from_the_agents_tables() -> None:
    assert exit_codes([TABLE, "nothing"]) == {1: -9}  # rank 2 was ended by the agent itself


def test_rank_that_is_killed_on_another_machine_is_the_cause_on_both(tmp_path: Path) -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    running = []
    for machine in ("a", "b"):
        command = [
            *(sys.executable, "-m", "fsdp_migrate", "verify", "train_fsdp2.py"),
            *("--record", str(tmp_path / machine), "--device", "cpu", "--steps", "2", "--timeout", "60"),
            *(
                "--nproc",
                "1",
                "--nnodes",
                "2",
                "--rdzv-endpoint",
                endpoint,
                "--keep",
                str(tmp_path / "shared"),
            ),
            *("--", "--mistake", "killed"),
        ]
        running.append(
            subprocess.Popen(
                command,
                cwd=PROJECT,
                env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    for process in running:
        _, said = process.communicate(timeout=150)
        assert process.returncode == 3, said
        assert "failed on rank 1: killed by SIGKILL" in said
    alive = [path.read_text().split()[1] for path in tmp_path.glob("shared/*.ranks/rank*/alive")]
    assert len(alive) == 2
    assert not [pid for pid in alive if Path("/proc", pid).exists()]
