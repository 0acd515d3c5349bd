"""What a job that ends badly is told: the first call that differs, what an error means, where
the ranks are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from traceback import FrameSummary

import pytest
from bench import Benches

from fsdp_migrate.errors import JobError
from fsdp_migrate.verify import failures, known_errors, tracebacks
from fsdp_migrate.verify.calls import Call, read_calls, where_they_part
from fsdp_migrate.verify.launcher import LaunchResult, RankExit
from fsdp_migrate.verify.model import ArmName
from fsdp_migrate.verify.spec import RankFiles

ROOT = Path(__file__).parents[2]


def call(kind: str, where: str = "", numel: int = 8, step: int = 0, backward: bool = False) -> Call:
    return Call(step, backward, kind, numel, "float32", 4, where)


GATHER = [call("all-gather", f"blocks.{number}") for number in range(3)]


def test_calls_are_read_back_and_a_line_cut_short_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "collectives.txt"
    file.write_text("".join(each.line() for each in GATHER) + GATHER[0].line()[:-9])
    assert read_calls(file) == GATHER
    assert read_calls(tmp_path / "nowhere") == []


def test_first_call_that_differs_is_named_per_rank() -> None:
    other = [GATHER[0], GATHER[2], call("reduce-scatter", "blocks.2", backward=True)]
    words = where_they_part({0: GATHER, 1: GATHER, 2: other, 3: GATHER}, hung=False)
    assert "the ranks part at collective 2, in step 1" in words
    assert "rank 0: all-gather of 8 float32 for blocks.1 (forward)" in words
    assert "rank 2: all-gather of 8 float32 for blocks.2 (forward)" in words
    assert "rank 1" not in words and "rank 3" not in words  # as rank 0


def test_rank_that_stays_away_is_named_in_a_hang_alone() -> None:
    short = {0: GATHER, 1: GATHER[:2]}
    assert where_they_part(short, hung=False) == ""  # it ended: its error says why
    words = where_they_part(short, hung=True)
    assert "rank 1 made 2 collectives and no more" in words
    assert "rank 0: all-gather of 8 float32 for blocks.2" in words
    assert where_they_part({0: GATHER, 1: GATHER}, hung=True) == ""
    assert where_they_part({}, hung=True) == ""


@pytest.mark.parametrize(
    ("error", "traceback", "words"),
    [
        ("RuntimeError: got mixed torch.Tensor and DTensor", "in load_state_dict", "set_model_state_dict"),
        ("RuntimeError: got mixed torch.Tensor and DTensor", "torch/optim/adamw.py", "parameter group of"),
        ("RuntimeError: got mixed torch.Tensor and DTensor", "torch/optim/optimizer.py", "is not torch's"),
        ("RuntimeError: got mixed torch.Tensor and DTensor", "job/optim/lion.py", "call the module itself"),
        ("RuntimeError: got mixed torch.Tensor and DTensor", "job/optim/optimizer.py", "call the module"),
        ("RuntimeError: got mixed torch.Tensor and DTensor", "clip_grad.py", "clip each kind"),
        ("RuntimeError: got mixed torch.Tensor and DTensor", "model.py", "register_fsdp_forward_method"),
        ("AttributeError: 'FSDPModel' object has no attribute 'module'", "", "changes the model in place"),
        ("AttributeError: 'FSDPModel' object has no attribute 'process_group'", "", "no FSDP1 internals"),
        ("OSError: [Errno 98] EADDRINUSE", "", "listens on the port that the script names"),
        ("RuntimeError: ... has failed to listen (errno: 98 - Address already in use).", "", "the port"),
        ("RuntimeError: Mesh should not be bigger than default world size 2, but found 8", "", "--nproc"),
        ("torch.OutOfMemoryError: CUDA out of memory.", "", "ran out of memory"),
        ("KeyError: 34", "", "the optimizer holds a parameter that the model has no more"),
        ("KeyError: 'batch 34'", "", ""),
        ("KeyError: 'param_groups.0.initial_lr'", "", "build it before set_optimizer_state_dict"),
        ("RuntimeError: mixed dtype (CPU): expect parameter to have scalar type of Float", "", "mp_policy"),
        ("RuntimeError: expected m1 and m2 to have the same dtype, but got: float != half", "", "mp_policy"),
        ("RuntimeError: Input type (float) and bias type (half) should be the same", "", "mp_policy"),
        ("ValueError: SyncBatchNorm expected input tensor to be on GPU", "", "SyncBatchNorm runs on GPUs"),
        ("ValueError: bad batch", "", ""),
    ],
)  # fmt: skip
def test_what_an_error_means(error: str, traceback: str, words: str) -> None:
    meant = known_errors.meaning(error, traceback)
    assert words in meant
    assert bool(meant) is bool(words)


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (
            "hangs",
            ["the candidate hangs: no rank made progress for 12 s. Rank 1 is stuck at", "rank 0: stuck at"],
        ),
        ("crashes", ["the candidate failed on rank 1: ValueError: bad batch"]),
        (
            "gathers-on-one-rank",
            [
                "the ranks part at collective",
                "for a DTensor (forward)\n  rank 1: all-gather of",
                "a DTensor is gathered on some ranks only",
            ],
        ),
        ("is-killed", ["the candidate failed on rank 1: killed by SIGKILL"]),
        ("wrong-world-size", ["--nproc what it expects"]),
        ("port-in-use", ["listens on the port that the script names"]),
    ],
)
def test_planted_failure_is_explained(zoo: Benches, mistake: str, words: list[str]) -> None:
    with pytest.raises(JobError) as raised:
        zoo.verdict("", 2, mistake=mistake, timeout_s=12.0 if mistake == "hangs" else 60.0)
    said = f"{raised.value.message}\n{raised.value.hint}"
    assert all(each in said for each in words), said
    assert "fsdp_migrate/verify" not in said  # a stack has the job's frames and torch's, not the probes'
    assert int(raised.value.exit_code) == 3


def test_unit_that_some_ranks_do_not_call_is_told_from_a_dtensor_that_they_do_not_gather() -> None:
    for wheres, words in (
        (("experts.3", "blocks.2"), "a unit is called on some ranks and not on others"),
        (("a DTensor", "blocks.2"), "a DTensor is gathered on some ranks only"),
        (("blocks.2", "blocks.2"), ""),
    ):
        calls = {rank: [call("all-gather", where, 8 + rank)] for rank, where in enumerate(wheres)}
        meant = failures.meant_by_calls(where_they_part(calls, hung=False))
        assert words in meant and bool(meant) is bool(words)


def test_frames_of_probes_are_left_out_of_stacks_but_for_their_own_errors() -> None:
    verify = Path(tracebacks.__file__).parent
    probe, job = str(verify / "probes" / "backward.py"), str(verify / "reference_job" / "train.py")
    files = [str(verify / "worker.py"), "<frozen runpy>", "train.py", probe, "torch/autograd/__init__.py"]

    def shown(*names: str) -> list[str]:
        return [one.filename for one in tracebacks.shown([FrameSummary(name, 1, "f") for name in names])]

    assert shown(*files) == ["train.py", "torch/autograd/__init__.py"]
    assert shown(*files, probe) == ["train.py", probe, "torch/autograd/__init__.py", probe]
    assert shown(files[0], job, probe, "torch/nn.py") == [job, "torch/nn.py"]
    mode = FrameSummary(probe, 1, "__torch_function__")
    assert [one.filename for one in tracebacks.shown([FrameSummary("a.py", 1, "f"), mode])] == ["a.py"]
    of_job = [FrameSummary("a.py", 1, "f"), FrameSummary("quantized.py", 1, "__torch_function__")]
    assert tracebacks.shown(of_job) == of_job
    lines = [f'  File "{name}", line 1 in f' for name in (*reversed(files), files[0])]
    stack = "\n".join(["Current thread (most recent call first):", *lines])
    assert tracebacks.shown_stack(stack).splitlines() == [stack.splitlines()[at] for at in (0, 1, 3)]
    assert tracebacks.shown_stack(lines[1]) == lines[1]  # there is nothing else to show


def test_rank_that_came_to_its_end_is_told_where_others_wait_for_it(tmp_path: Path) -> None:
    """It did not fail, so that nothing else names it."""
    waits, ended = (RankFiles.of(tmp_path, "candidate", rank) for rank in range(2))
    for files in (waits, ended):
        files.folder.mkdir(parents=True)
    waits.stacks.write_text('Current thread (most recent call first):\n  File "train.py", line 3 in main\n')
    ended.done.touch()
    result = LaunchResult((RankExit(0, None, 1), RankExit(1, 0, 0)), hung=True)
    with pytest.raises(JobError) as raised:
        failures.check(result, tmp_path, ArmName.CANDIDATE, "the candidate", 60.0)
    assert 'Rank 0 is stuck at File "train.py", line 3' in raised.value.message
    assert "(rank 1 came to the end of the script)" in raised.value.message


def test_termination_stops_ranks_and_removes_what_was_temporary(tmp_path: Path) -> None:
    project = Path(__file__).parent / "projects" / "tiny"
    command = [
        *(sys.executable, "-m", "fsdp_migrate", "verify", "train_fsdp2.py", "--baseline", "train_fsdp1.py"),
        *("--device", "cpu", "--timeout", "60", "--", "--mistake", "hang"),
    ]
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    process = subprocess.Popen(
        command,
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TMPDIR": str(temporary)},
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 60
    alive = "fsdp-migrate-verify-*/records/candidate.ranks/rank*/collectives.txt"
    while time.monotonic() < until and len(list(temporary.glob(alive))) < 2:
        time.sleep(0.1)
    pids = [int(each.read_text().split()[1]) for each in temporary.rglob("candidate.ranks/rank*/alive")]
    assert len(pids) == 2
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    assert list(temporary.iterdir()) == []
    assert not [pid for pid in pids if Path("/proc", str(pid)).exists()]
