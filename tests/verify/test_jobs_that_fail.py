"""A job that crashes, hangs, leaves or never trains ends in its first cause, and leaves no process behind."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bench import PROJECT, Bench

from fsdp_migrate.errors import JobError, MigrateError, UsageError
from fsdp_migrate.verify import failures
from fsdp_migrate.verify.launcher import LaunchResult, RankExit, RankServer, choose_device
from fsdp_migrate.verify.model import ArmName
from fsdp_migrate.verify.spec import RankFiles, WorkerSpec
from tests.program import run_program

ROOT = Path(__file__).parent.parent.parent


def command(*options: str, keep: Path, timeout: str = "60") -> list[str]:
    """The command line of one verification of the small project, two steps on two ranks."""
    program = [
        sys.executable,
        "-m",
        "fsdp_migrate",
        "verify",
        "train_fsdp2.py",
        "--baseline",
        "train_fsdp1.py",
    ]
    shared = ["--keep", str(keep), "--steps", "2", "--timeout", timeout, "--device", "cpu"]
    return [*program, *shared, "--", *options]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def run(*options: str, keep: Path, timeout: str = "60") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*options, keep=keep, timeout=timeout),
        cwd=PROJECT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def ranks_alive(keep: Path) -> list[int]:
    """Ranks of a verification that still run, by the process ids they left."""
    pids = [int(each.read_text().split()[1]) for each in keep.glob("*.ranks/rank*/alive") if each.read_text()]
    assert pids
    return [pid for pid in pids if Path("/proc", str(pid)).exists()]


def test_crash_is_shown_with_the_users_own_traceback(tmp_path: Path) -> None:
    done = run("--mistake", "crash", keep=tmp_path / "kept")
    assert done.returncode == 3, done.stderr
    said = " ".join(done.stdout.split())
    assert said.startswith("FAIL the first step agrees; the candidate died in step 2: train_fsdp2.py")
    assert "the candidate failed on rank 1: ValueError: bad batch" in said
    assert f'{PROJECT}/train_fsdp2.py", line' in said  # not the path of the copy
    assert "raise ValueError" in said
    assert "hint:" in said
    assert ranks_alive(tmp_path / "kept") == []


@pytest.mark.parametrize(
    ("mistake", "error", "words"),
    [
        ("leave", JobError, r"the candidate failed on rank 1: SystemExit: the script called sys.exit\(1\)"),
        ("killed", JobError, "the candidate failed on rank 1: killed by SIGKILL"),
        ("never", UsageError, "the candidate ended without a single optimizer step"),
    ],
)
def test_failing_job_names_the_first_cause(
    two_ranks: Bench, mistake: str, error: type[MigrateError], words: str
) -> None:
    with pytest.raises(error, match=words) as raised:
        two_ranks.verdict("--steps", "3", mistake=mistake)
    assert raised.value.hint
    assert ranks_alive(two_ranks.folder / str(two_ranks.launches) / "records") == []


def test_hanging_rank_is_named_with_its_place(tmp_path: Path) -> None:
    began = time.monotonic()
    done = run("--mistake", "hang", keep=tmp_path / "kept", timeout="6")
    assert done.returncode == 3
    assert "the candidate hangs: no rank made progress for 6 s. Rank 1 is stuck at" in done.stdout
    assert "in misbehave" in done.stdout
    assert f'File "{PROJECT}/train_fsdp2.py"' in done.stdout
    assert "fsdp-migrate-verify-" not in done.stdout + done.stderr  # the copy, which is gone
    assert ranks_alive(tmp_path / "kept") == []
    assert time.monotonic() - began < 60


def test_interrupt_leaves_no_process(tmp_path: Path) -> None:
    keep = tmp_path / "kept"
    process = subprocess.Popen(
        command("--mistake", "hang", keep=keep),
        cwd=PROJECT,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 60
    while time.monotonic() < until and len(list(keep.glob("candidate/rank*/events.jsonl"))) < 2:
        time.sleep(0.1)
    assert ranks_alive(keep)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "interrupted" in said
    assert ranks_alive(keep) == []


def test_launch_without_the_process_that_forks_is_a_failed_job(tmp_path: Path) -> None:
    """Not a broken pipe: the command line takes that for a reader who has gone, and leaves with 0."""
    spec = WorkerSpec(
        program="module",
        target="this",
        arguments=(),
        cwd=str(tmp_path),
        records=str(tmp_path),
        arms=(ArmName.CANDIDATE,),
        steps=1,
        device="cpu",
        fixed_order=False,
    )
    with RankServer(nproc=1) as server:
        server._process.kill()
        server._process.wait()
        with pytest.raises(JobError, match="the process that starts the ranks has died"):
            server.launch(spec, nproc=1, timeout_s=10)


def test_users_files_stay_as_they_are(tmp_path: Path) -> None:
    def digests() -> dict[str, str]:
        files = (path for path in PROJECT.rglob("*") if path.is_file())
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    before = digests()
    assert run("--steps", "1", keep=tmp_path / "kept").returncode == 0
    assert digests() == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.py"], "nowhere.py: no such file"),
        (["train_fsdp2.py"], "no .fsdp-migrate/manifest.json here or above"),
        (["train_fsdp2.py", "--baseline", "no-such-revision"], "no such file, directory or git revision"),
        (
            ["train_fsdp2.py", "--baseline", "train_fsdp1.py", "--keep", str(PROJECT)],
            "is not an empty directory",
        ),
        (["--output", "."], "--output . cannot be written: Is a directory"),
        (["--output", "model.py/report"], "--output model.py/report cannot be written: Not a directory"),
        (["--nnodes", "2"], "--nnodes needs --keep DIR"),
        (["--device", "cuda"], "torch finds no GPU"),
    ],
)
def test_bad_input_says_what_to_do(arguments: list[str], words: str) -> None:
    done = run_program("verify", *arguments, cwd=PROJECT, env=environment() | {"CUDA_VISIBLE_DEVICES": ""})
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_more_processes_than_gpus_is_refused() -> None:
    with pytest.raises(UsageError, match="--nproc 8: this machine has 4 GPUs"):
        choose_device("auto", 8, 4)
    with pytest.raises(UsageError, match="--nproc 2: this machine has 1 GPU,"):
        choose_device("cuda", 2, 1)
    assert choose_device("auto", 4, 4) == "cuda"
    assert choose_device("cpu", 8, 4) == "cpu"
    assert choose_device("auto", 8, 0) == "cpu"


def test_abort_at_exit_after_a_complete_record_is_no_failure(tmp_path: Path) -> None:
    for rank in range(2):
        files = RankFiles.of(tmp_path, "original", rank)
        files.folder.mkdir(parents=True)
        files.done.touch()
    aborted = LaunchResult((RankExit(0, 0, 0), RankExit(1, -signal.SIGABRT, 1)), hung=False)
    failures.check(aborted, tmp_path, ArmName.ORIGINAL, "the original", 60.0)
    RankFiles.of(tmp_path, "original", 1).done.unlink()
    with pytest.raises(JobError, match="failed on rank 1: killed by SIGABRT"):
        failures.check(aborted, tmp_path, ArmName.ORIGINAL, "the original", 60.0)


def test_signal_without_a_name_is_told_by_its_number(tmp_path: Path) -> None:
    nameless = next(n for n in range(1, signal.NSIG) if n not in {one.value for one in signal.Signals})
    ended = LaunchResult((RankExit(0, -nameless, 0),), hung=False)
    with pytest.raises(JobError, match=f"killed by signal {nameless}"):
        failures.check(ended, tmp_path, ArmName.ORIGINAL, "the original", 60.0)


def test_cause_is_told_from_its_louder_echo() -> None:
    def failure(rank: int, text: str, at: float, echo: bool) -> failures.RankFailure:
        return failures.RankFailure(rank, text, "", at, echo)

    echo = failure(0, "RuntimeError: Connection closed by peer", 10.0, True)
    cause = failure(3, "ValueError: bad batch", 12.0, False)
    later = failure(1, "KeyError: 'x'", 13.0, False)
    assert failures.first_cause([echo, later, cause]) is cause
    assert failures.first_cause([echo]) is echo
