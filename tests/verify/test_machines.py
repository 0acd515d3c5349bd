"""Two of torch's elastic agents on this machine, each started as on a machine of its own: as two pods."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import yaml
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


def command_of_a_pod(folder: Path, endpoint: str, destination: Path) -> list[str]:
    """The command of `docs/verify-job.yaml`, for this machine: other places and one CPU rank in each pod."""
    documents = yaml.safe_load_all((ROOT / "docs" / "verify-job.yaml").read_text("utf-8"))
    job = next(each for each in documents if each["kind"] == "Job")
    pod = job["spec"]["template"]["spec"]
    service = f"{job['metadata']['name']}-0.{pod['subdomain']}"
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == 2
    here = {
        "train.py": ["train_fsdp2.py"],
        "8": ["1"],
        f"{service}:29500": [endpoint],
        "/shared/verify-1": [str(folder / "shared")],
        "fsdp-migrate": [sys.executable, "-m", "fsdp_migrate"],
    }
    words = pod["containers"][0]["command"]
    assert set(here) <= set(words)
    command = [word for each in words for word in here.get(each, [each])]
    more = ["--record", str(destination), "--device", "cpu", "--steps", "2", "--timeout", "60"]
    return [*command, *more, "--", "--mistake", "killed"]


def test_rank_that_is_killed_on_another_machine_is_the_cause_on_both(tmp_path: Path) -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    running = []
    for index, machine in enumerate(("a", "b")):
        command = command_of_a_pod(tmp_path, endpoint, tmp_path / machine)
        pod = {"JOB_COMPLETION_INDEX": str(index), "HOSTNAME": f"fsdp-verify-{index}"}
        pod |= {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_PORT": "tcp://10.0.0.1:443"}
        running.append(
            subprocess.Popen(
                command,
                cwd=PROJECT,
                env={**os.environ, **pod, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
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
