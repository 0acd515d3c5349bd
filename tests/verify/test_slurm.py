"""Ranks that `srun` starts: its variables are read as torchrun's, its tasks come to one verdict."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from bench import PROJECT

from fsdp_migrate.errors import JobError, UsageError
from fsdp_migrate.verify import slurm
from fsdp_migrate.verify.baseline import Source
from fsdp_migrate.verify.environment import free_port
from fsdp_migrate.verify.model import ArmName
from fsdp_migrate.verify.shadow import place
from fsdp_migrate.verify.slurm import Tasks, device_of_tasks, first_host, task, tasks_per_node
from fsdp_migrate.verify.spec import RankFiles, WorkerSpec

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("hosts", "first"),
    [
        ("node7", "node7"),
        ("node7,node9", "node7"),
        ("gpu[003-005,9],login1", "gpu003"),
        ("gpu[12]", "gpu12"),
        ("a[1-2]-ib,b1", "a1-ib"),
        ("rack-1.site.org", "rack-1.site.org"),
    ],
)
def test_first_host_of_a_list(hosts: str, first: str) -> None:
    assert first_host(hosts) == first


def test_tasks_of_each_node() -> None:
    assert tasks_per_node("4(x2),3") == [4, 4, 3]
    assert tasks_per_node("8") == [8]
    assert tasks_per_node("1,2(x3)") == [1, 2, 2, 2]


def variables(rank: int, size: int, **more: str) -> dict[str, str]:
    """What srun sets for one task of a step on one node."""
    return {
        "SLURM_JOB_ID": "4711",
        "SLURM_STEP_ID": "0",
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank),
        "SLURM_NTASKS": str(size),
        "SLURM_NODEID": "0",
        "SLURM_STEP_TASKS_PER_NODE": str(size),
        "SLURM_STEP_NODELIST": "localhost",
        **more,
    }


def test_variables_are_those_of_torchrun() -> None:
    told = variables(
        9,
        11,
        SLURM_LOCALID="1",
        SLURM_NODEID="2",
        SLURM_STEP_TASKS_PER_NODE="4(x2),3",
        SLURM_STEP_NODELIST="gpu[003-005]",
    )
    mine = task(told)
    assert mine is not None
    found = mine.environment(2)
    wanted = {
        "RANK": "9",
        "WORLD_SIZE": "11",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "3",
        "GROUP_RANK": "2",
        "GROUP_WORLD_SIZE": "3",
        "MASTER_ADDR": "gpu003",
    }
    assert {key: found[key] for key in wanted} == wanted
    assert int(found["MASTER_PORT"]) == int(mine.environment(0)["MASTER_PORT"]) + 2
    other = task(variables(0, 11, SLURM_STEP_TASKS_PER_NODE="4(x2),3"))
    assert other is not None and other.port == mine.port  # all tasks of a step agree


@pytest.mark.parametrize(
    "outside",
    [
        {},
        {key: value for key, value in variables(0, 4).items() if key != "SLURM_STEP_ID"},  # salloc, sbatch
        variables(0, 1),  # torchrun or verify itself, once on a node
        {**variables(0, 2), "RANK": "0"},  # torchrun below srun
    ],
    ids=["none", "batch script", "one task", "torchrun"],
)
def test_what_is_no_task_of_several(outside: dict[str, str]) -> None:
    assert task(outside) is None


def test_tasks_that_see_one_gpu_each_are_told_how_to_see_all() -> None:
    """`--gpus-per-task=1` hides the others, and ranks choose by LOCAL_RANK."""
    with pytest.raises(UsageError, match="each task sees 1 GPU, and 4 tasks run on this node") as refused:
        device_of_tasks("auto", 4, 1)
    assert "--gpus-per-node 4 without --gpus-per-task" in (refused.value.hint or "")
    assert device_of_tasks("cuda", 4, 4) == "cuda"
    assert device_of_tasks("auto", 4, 0) == device_of_tasks("cpu", 4, 1) == "cpu"
    with pytest.raises(UsageError, match="torch finds no GPU"):
        device_of_tasks("cuda", 4, 0)


def one_task(folder: Path, rank: int, **more: str) -> Tasks:
    mine = task(variables(rank, 2, **more))
    assert mine is not None
    made = Tasks(mine, folder / "shared", on_cpu=True)
    made.trees = folder / made.trees.name
    return made


def project(folder: Path) -> Source:
    folder.mkdir()
    (folder / "train.py").write_text("")
    return Source(folder, "train.py", ".", {}, "a directory")


def test_step_of_a_job_that_is_queued_again_meets_nothing_of_the_run_before(tmp_path: Path) -> None:
    source = project(tmp_path / "project")
    for restart in ("0", "1", "2"):  # nobody removed the trees: the job was killed
        first, other = (one_task(tmp_path, rank, SLURM_RESTART_COUNT=restart) for rank in (0, 1))
        (source.root / "new.py").write_text(restart)
        tree = first.trees / "candidate"
        assert not tree.exists() and other.trees == first.trees
        first.build(source, tree, source.root)
        assert other.build(source, tree, source.root) == []
        assert (place(tree, source.root) / "new.py").read_text() == restart
    assert len({path.name for path in tmp_path.glob("fsdp-migrate-*")}) == 3


def test_tasks_do_not_wait_for_a_copy_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = project(tmp_path / "project")
    first, other = (one_task(tmp_path, rank) for rank in (0, 1))
    tree = first.trees / "candidate"
    place(tree, source.root).mkdir(parents=True)  # so that the copy fails
    with pytest.raises(FileExistsError), first:
        first.build(source, tree, source.root)
    assert not first.trees.exists()
    monkeypatch.setattr(slurm, "_TREE_SECONDS", math.inf)  # so that nothing but the word left ends it
    with pytest.raises(JobError, match="made no copy of the project"):
        other.build(source, tree, source.root)


def test_tasks_that_an_earlier_run_does_not_concern_refuse_with_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had one task, which left its records; the second task sees nothing of its own there."""
    monkeypatch.setattr(slurm, "_TREE_SECONDS", math.inf)
    records = tmp_path / "shared"
    RankFiles.of(records, "candidate", 0).folder.mkdir(parents=True)
    first, other, late = one_task(tmp_path, 0), one_task(tmp_path, 1), one_task(tmp_path, 1)
    other.require_new(records)
    waits: list[BaseException] = []

    def wait() -> None:
        with pytest.raises(UsageError, match="an earlier run left its records there") as refused:
            other.build(project(tmp_path / "project"), other.trees / "candidate", tmp_path)
        waits.append(refused.value)

    waiting = threading.Thread(target=wait)
    waiting.start()
    with pytest.raises(UsageError, match="an earlier run left its records there"), first:
        first.require_new(records)
    waiting.join(timeout=120)
    assert len(waits) == 1
    with pytest.raises(UsageError, match="an earlier run left its records there"):
        late.require_new(records)


def test_task_whose_rank_runs_already_ends_it_when_another_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = tmp_path / "shared"
    RankFiles.of(records, "candidate", 0).folder.mkdir(parents=True)
    first, other = one_task(tmp_path, 0), one_task(tmp_path, 1)
    other.require_new(records)
    rank, pid = tmp_path / "rank", tmp_path / "pid"
    rank.write_text(f"#!/bin/sh\necho $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 600\n")
    rank.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(rank))  # what a task starts its rank with
    spec = WorkerSpec("script", "x.py", (), "/", str(records), (ArmName.CANDIDATE,), 1, "cpu", False)

    def refuse() -> None:
        while not pid.exists():
            time.sleep(0.01)
        with pytest.raises(UsageError), first:
            first.require_new(records)

    refusing = threading.Thread(target=refuse)
    refusing.start()
    with pytest.raises(UsageError, match="an earlier run left its records there"), other:
        other.launch(spec, 2, math.inf)
    refusing.join(timeout=60)
    assert not Path("/proc", pid.read_text().strip()).exists()


def srun(folder: Path, size: int, *arguments: str) -> list[subprocess.CompletedProcess[str]]:
    """Start the command as often as srun would, and wait for all."""
    command = [sys.executable, "-m", "fsdp_migrate", "verify", "train_fsdp2.py", "--device", "cpu"]
    command += ["--keep", str(folder / "shared"), "--steps", "2", "--timeout", "60", *arguments]
    shared = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "TMPDIR": str(folder)}
    running = [
        subprocess.Popen(
            command,
            cwd=PROJECT,
            env={**shared, **variables(rank, size)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    done = []
    for process in running:
        out, err = process.communicate(timeout=150)
        done.append(subprocess.CompletedProcess(command, process.returncode, out, err))
    return done


def left_over(folder: Path) -> list[str]:
    pids = [path.read_text().split()[1] for path in folder.glob("shared/*.ranks/rank*/alive")]
    assert pids
    return [pid for pid in pids if Path("/proc", pid).exists()]


def test_tasks_come_to_one_verdict_and_the_first_tells_it(tmp_path: Path) -> None:
    done = srun(tmp_path, 2, "--baseline", "train_fsdp1.py")
    assert [each.returncode for each in done] == [0, 0], [each.stderr for each in done]
    assert done[0].stdout.startswith("PASS  parity holds")
    assert "2 processes" in done[0].stdout
    assert done[1].stdout == ""
    assert not left_over(tmp_path)
    assert not list(tmp_path.glob("fsdp-migrate-*"))


def test_task_whose_rank_is_killed_is_the_cause(tmp_path: Path) -> None:
    done = srun(tmp_path, 2, "--record", str(tmp_path / "record"), "--", "--mistake", "killed")
    assert [each.returncode for each in done] == [3, 3]
    assert f"failed on rank 1: killed by {signal.SIGKILL.name}" in done[0].stderr
    assert "the first task says why" in done[1].stderr
    assert not left_over(tmp_path)
    assert not (tmp_path / "record").exists()
    again = srun(tmp_path, 2, "--record", str(tmp_path / "record"))
    assert [each.returncode for each in again] == [2, 2]
    assert "an earlier run left its records there" in again[0].stderr
