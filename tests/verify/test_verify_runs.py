"""Where the original comes from, how ranks are started, and what the report says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from bench import PROJECT, Bench, bench
from resume_file import full_checkpoint

from fsdp_migrate.cli.verify_options import AlsoOption, also_measured
from fsdp_migrate.errors import JobError, UsageError
from fsdp_migrate.reports import parity
from fsdp_migrate.verify.baseline import build_tree, sources
from fsdp_migrate.verify.model import ArmName, Check, LaunchOptions, Outcome, ParityReport, VerifyRequest
from fsdp_migrate.verify.probes.recorder import Recorder
from fsdp_migrate.verify.probes.session import Session
from fsdp_migrate.verify.probes.spans import span_words
from fsdp_migrate.verify.reference_job.config import ReferenceConfig
from fsdp_migrate.verify.run import verify_reference

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A bench with one rank."""
    return bench(tmp_path_factory.mktemp("one"), 1, steps=2)


@pytest.fixture
def rewritten(tmp_path: Path) -> Path:
    """A project as `rewrite` leaves it: two files changed, one new, the originals beside the manifest."""
    project = tmp_path / "project"
    project.mkdir()
    for name in ("model.py", "train_fsdp1.py"):
        shutil.copy(PROJECT / name, project / name)
    (project / "train_fsdp1.py").rename(project / "train.py")
    (project / "data").mkdir()
    (project / "data" / "words.txt").write_text("a b c")
    git(project, "init", "-q")
    git(project, "add", "-A")
    git(project, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "before")
    kept = project / ".fsdp-migrate" / "original"
    kept.mkdir(parents=True)
    shutil.move(project / "train.py", kept / "train.py")
    source = (PROJECT / "train_fsdp2.py").read_text()
    (project / "train.py").write_text(
        source.replace("import itertools\n", "import itertools\nimport sharding\n")
    )
    (project / "sharding.py").write_text("print('helper')\n")
    files = [
        {"path": "train.py", "sha256_before": "", "sha256_after": "", "original": "original/train.py"},
        {"path": "sharding.py", "sha256_before": None, "sha256_after": "", "original": None},
    ]
    (kept.parent / "manifest.json").write_text(json.dumps({"version": 1, "git_commit": None, "files": files}))
    return project


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=folder, check=True)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".git/" not in path.as_posix()
    }


@pytest.mark.parametrize("baseline", [None, "HEAD"])
def test_original_tree_is_built_from_manifest_or_revision(
    rewritten: Path, tmp_path: Path, baseline: str | None
) -> None:
    before = contents(rewritten)
    request = VerifyRequest("train.py", baseline=baseline, cwd=rewritten)
    original, candidate = sources(request)
    build_tree(original, tmp_path / "original")
    build_tree(candidate, tmp_path / "candidate")
    first, second = contents(tmp_path / "original"), contents(tmp_path / "candidate")
    assert first["train.py"] == (PROJECT / "train_fsdp1.py").read_bytes()
    assert second["train.py"] == before["train.py"]
    assert ("sharding.py" in first) is (
        baseline is not None
    )  # git did not know the new file, the manifest does
    assert "sharding.py" in second
    assert first["data/words.txt"] == second["data/words.txt"] == b"a b c"
    assert contents(rewritten) == before


def test_rewritten_project_is_verified_from_its_manifest(one_rank: Bench, rewritten: Path) -> None:
    before = contents(rewritten)
    report = one_rank.script(VerifyRequest("train.py", ("--clip", "0.3"), cwd=rewritten))
    assert report.passed
    assert (report.original.kind, report.candidate.kind) == ("FSDP1", "FSDP2")
    assert "what rewrite recorded" in report.baseline
    assert any(notice.startswith("stopped after step 2: ") for notice in report.notices)
    assert contents(rewritten) == before


_SPAWNS = """
import os, random, sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.fsdp import fully_shard


def work(rank, world, port, how):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", port
    method = {} if how == "environment" else {"init_method": f"tcp://localhost:{port}"}
    dist.init_process_group("nccl", rank=rank, world_size=world, **method)
    torch.cuda.set_device(rank)
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4).to(rank)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        model(torch.full((2, 4), rank + 1.0, device=rank)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    world = int(sys.argv[2]) if len(sys.argv) > 2 else torch.cuda.device_count()
    # Each process that runs this chooses another one.
    mp.spawn(work, args=(world, str(random.SystemRandom().randint(20000, 30000)), sys.argv[1]), nprocs=world)
"""


def test_script_that_spawns_its_ranks_is_run_in_those_that_are_there(
    two_ranks: Bench, tmp_path: Path
) -> None:
    for name in ("train.py", "before.py"):
        (tmp_path / name).write_text(_SPAWNS)
    for how in ("environment", "address"):
        report = two_ranks.script(VerifyRequest("train.py", (how,), baseline="before.py", cwd=tmp_path))
        assert (report.nproc, report.steps, report.candidate.kind) == (2, 3, "FSDP2")
        loss = next(check for check in report.checks if check.title == "Loss")
        assert (loss.outcome, loss.compared) == (Outcome.EQUAL, 6)
    request = VerifyRequest("train.py", ("environment", "4"), baseline="before.py", cwd=tmp_path)
    with pytest.raises(JobError, match="give --nproc 4"):
        two_ranks.script(request)


def test_module_is_run_as_python_runs_it(one_rank: Bench, rewritten: Path) -> None:
    report = one_rank.script(VerifyRequest("train", as_module=True, cwd=rewritten))
    assert report.passed
    assert report.steps == 2


def test_step_that_torch_makes_to_load_an_optimizer_is_no_step(two_ranks: Bench, tmp_path: Path) -> None:
    """`set_optimizer_state_dict` steps an optimizer without state: with it the arms would be a step apart."""
    full_checkpoint(tmp_path / "full.pt")
    report = two_ranks.verdict("--resume", str(tmp_path / "full.pt"), "--steps", "2")
    assert report.passed, report.causes
    assert report.largest == ()
    assert (report.original.steps, report.candidate.steps) == (2, 2)
    assert (report.candidate.kind, len(report.candidate.units)) == ("FSDP2", 4)
    state = next(check for check in report.checks if check.title == "Optimizer state")
    assert (state.outcome, state.compared) == (Outcome.EQUAL, (1 + 2) * 14 * 3)  # once as loaded


@pytest.mark.parametrize(
    "content", ["{", "{}", '{"files": []}', '{"files": [{"path": "a.py", "original": "gone"}]}']
)
def test_damaged_manifest_is_bad_input(rewritten: Path, content: str) -> None:
    (rewritten / ".fsdp-migrate" / "manifest.json").write_text(content)
    with pytest.raises(UsageError, match=r"manifest\.json"):
        sources(VerifyRequest("train.py", cwd=rewritten))


def test_module_of_the_working_tree_in_the_original_is_refused(one_rank: Bench, rewritten: Path) -> None:
    """As an editable install by import hook makes it: the original would run converted code."""
    kept = rewritten / ".fsdp-migrate" / "original" / "train.py"
    stray = str(rewritten / "sharding.py")
    hook = f"import importlib.util as u, sys\nspec = u.spec_from_file_location('stray', {stray!r})\n"
    kept.write_text(f"{hook}sys.modules['stray'] = u.module_from_spec(spec)\n" + kept.read_text())
    with pytest.raises(UsageError, match=r"imported sharding\.py from the working tree"):
        one_rank.script(VerifyRequest("train.py", cwd=rewritten))


def test_script_written_for_gpus_is_rehearsed_on_cpus(two_ranks: Bench, tmp_path: Path) -> None:
    """Wherever the user stands: what names cuda is the project, not the directory it is started in."""
    project = PROJECT.parent / "gpu_script"
    script, baseline = str(project / "train_fsdp2.py"), str(project / "train_fsdp1.py")
    report = two_ranks.script(VerifyRequest(script, baseline=baseline, cwd=tmp_path))
    assert report.passed, report.causes
    assert report.largest == ()
    assert report.device == "cpu"
    assert {
        "process group backend nccl -> gloo",
        "device cuda -> cpu",
        "tensor.cuda() leaves the tensor on the CPU",
        "autocast cuda -> cpu",
        "gradient scaler cuda -> cpu",
        "torch.cuda.synchronize() does nothing",
        "SyncBatchNorm takes the statistics of all ranks' batch by all-reduce",
        "FSDP1: device_id=torch.device('cpu')",
    } <= set(report.substitutions)
    buffers = next(check for check in report.checks if check.title == "Buffers")
    assert buffers.compared == 2 * 3 * 4  # on two ranks, before and after each of three steps


@pytest.fixture(scope="module")
def three_ranks(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A bench with three ranks that keeps no tensor in full."""
    return bench(tmp_path_factory.mktemp("three"), 3, full_limit_bytes=0)


def test_three_ranks_are_equal_to_the_last_bit_by_digests_alone(three_ranks: Bench) -> None:
    report = three_ranks.verdict("--dtype", "bf16", "--accumulate", "1")
    assert report.passed
    assert report.largest == ()
    assert "rank order" in report.reduction
    weights = next(check for check in report.checks if check.title.startswith("Weights"))
    assert (weights.outcome, weights.compared) == (Outcome.EQUAL, 3 * 14)


def test_sketches_tell_the_size_of_a_difference(three_ranks: Bench) -> None:
    report = three_ranks.verdict(mistake="optimizer-first")
    assert not report.passed
    assert report.causes[0].code == "optimizer-before-shard"
    assert report.first is not None
    assert (report.first.step, report.first.quantity, report.first.index) == (1, "weight", ())
    assert 1e-4 < report.first.relative < 0.5


def test_odd_number_of_ranks_may_add_up_in_another_order(three_ranks: Bench) -> None:
    """Three ranks that add up in an order of their own differ by rounding, and a mistake by more."""
    options = replace(three_ranks.run.options, fixed_order=False)
    unordered = Bench(replace(three_ranks.run, options=options), three_ranks.folder / "unordered")
    report = unordered.verdict()
    assert report.passed, report.causes
    (gradients,) = [check for check in report.checks if check.title == "Gradients before clipping"]
    assert gradients.outcome is Outcome.WITHIN and 0 < gradients.largest_relative < gradients.tolerance < 1e-3
    assert "sums taken in another order" in gradients.origin
    wrong = unordered.verdict(mistake="optimizer-first")
    assert not wrong.passed and wrong.causes[0].code == "optimizer-before-shard"


def test_script_is_timed_under_ddp_too(tmp_path: Path) -> None:
    """FSDP1's wrapper becomes DDP; a script that does what DDP cannot loses a column and no verdict."""
    made = bench(tmp_path, 2, steps=2, profile=True, also=("ddp",))
    request = VerifyRequest("train_fsdp2.py", ("--dtype", "bf16"), baseline="train_fsdp1.py", cwd=PROJECT)
    report = made.script(request)
    assert report.passed
    assert "under ddp: autocast in bfloat16 takes the place of parameters in bfloat16" in report.notices
    assert [arm.name for arm in report.performance] == [ArmName.ORIGINAL, ArmName.CANDIDATE, ArmName.DDP]
    original, _, ddp = report.performance
    assert ddp.steps == original.steps
    assert "all-gather" in [name for name, *_ in original.collectives]
    assert "all-gather" not in [name for name, *_ in ddp.collectives]


@pytest.mark.parametrize("name", ["deepspeed", "megatron-fsdp"])
def test_what_cannot_be_measured_here_is_refused(name: str) -> None:
    why = {"deepspeed": "deepspeed is not installed here", "megatron-fsdp": "it runs on GPUs alone"}[name]
    with pytest.raises(UsageError, match=f"--also {name}: {why}"):
        also_measured([AlsoOption.ddp, AlsoOption(name)])
    assert also_measured([AlsoOption.ddp, AlsoOption.ddp]) == ("ddp",)


@pytest.fixture(scope="module")
def reference() -> ParityReport:
    """The bundled job on two ranks, both arms in one launch."""
    return verify_reference(ReferenceConfig(steps=3), LaunchOptions(nproc=2, device="cpu", timeout_s=100))


def test_reference_job_holds_parity(reference: ParityReport) -> None:
    assert reference.passed, reference.causes
    assert (reference.original.kind, reference.candidate.kind) == ("FSDP1", "FSDP2")
    assert reference.original.units == reference.candidate.units
    assert len(reference.original.units) == 5
    assert reference.steps == 3
    assert len(reference.original.gradient_norms) == 3
    assert reference.original.step_seconds is not None and reference.original.step_seconds > 0
    assert reference.candidate.peak_bytes > 50 << 20
    assert dict(reference.candidate.collectives)["reduce-scatter"] == 5


def test_report_is_complete_in_every_form(reference: ParityReport) -> None:
    plain = json.loads(parity.render(reference, "json"))
    assert plain["passed"] is True
    assert plain["original"]["losses"] == list(reference.original.losses)
    assert [check["outcome"] for check in plain["checks"]] == [
        check.outcome.value for check in reference.checks
    ]
    text, markdown = parity.render(reference, "text"), parity.render(reference, "md")
    assert text.startswith("PASS  parity holds")
    assert markdown.startswith("### ✅ FSDP1 → FSDP2: parity holds")
    for check in reference.checks:
        assert check.title in text
        assert f"| {check.title} |" in markdown
    assert f"{reference.original.losses[0]:.9g}" in text
    assert "step time" in markdown


def test_failing_report_says_where_why_and_what_to_do(two_ranks: Bench) -> None:
    report = two_ranks.verdict(mistake="optimizer-first")
    for form in ("text", "md"):
        page = parity.render(report, form)
        assert "parity does not hold" in page
        assert "step 1, weight of" in page.replace("\n", " ")
        assert "build the optimizer after the last fully_shard call" in page.replace("\n", " ")
    assert "x  Weights after each step" in parity.render(report, "text")


def test_head_of_a_failing_report_is_never_blank(reference: ParityReport) -> None:
    """Where no number differs, as with other dtypes of equal values, the check that fails is what differs."""
    dtypes = Check("Dtypes of weights", Outcome.DIFFERS, "weight of head: float32 -> float64")
    failing = replace(reference, passed=False, checks=(dtypes,), first=None)
    for form in ("text", "md"):
        page = " ".join(parity.render(failing, form).split())
        assert "First difference" in page
        assert "Dtypes of weights: weight of head: float32 -> float64" in page


def test_ranks_of_torchs_own_agent_give_the_same_verdict(tmp_path: Path) -> None:
    """Through the command line: fresh interpreters, report into a file, exit code 1."""
    done = subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "fsdp_migrate",
                "verify",
                "train_fsdp2.py",
                "--baseline",
                "train_fsdp1.py",
            ),
            *("--no-preload", "--nproc", "1", "--steps", "2", "--device", "cpu", "--format", "json"),
            *("--output", str(tmp_path / "report.json"), "--", "--mistake", "optimizer-first"),
        ],
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("FAIL")
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["causes"][0]["code"] == "optimizer-before-shard"
    assert report["first"]["step"] == 1


def test_timelines_of_arms_that_are_recorded_have_the_phases_of_one_step(reference: ParityReport) -> None:
    """What the probes that record tensors noted, with their own time left out."""
    assert [one.name for one in reference.timelines] == [ArmName.ORIGINAL, ArmName.CANDIDATE]
    for one in reference.timelines:
        phases = [(kind, begin, end) for kind, begin, end in one.spans if kind != "communication"]
        assert [kind for kind, *_ in phases] == ["forward", "backward", "optimizer"]
        edges = [edge for _, begin, end in phases for edge in (begin, end)]
        assert edges[0] == 0 and edges == sorted(edges) and edges[-1] == pytest.approx(one.seconds)
        talks = [(begin, end) for kind, begin, end in one.spans if kind == "communication"]
        assert any(edges[0] <= begin < end <= edges[1] for begin, end in talks)  # gathered
        assert any(edges[2] <= begin < edges[3] for begin, _ in talks)  # reduced


def test_time_of_probes_is_no_time_of_a_span(tmp_path: Path) -> None:
    session = Session(Recorder(tmp_path / "rank0", 0), 1, tmp_path / "alive", lambda: None)
    for kind in ("forward", "backward"):
        with session.span(kind), session.probing():
            time.sleep(0.2)
    with session.span("optimizer"):
        time.sleep(0.05)
    words = span_words(session.now.spans)
    assert [kind for kind, *_ in words] == ["forward", "backward", "optimizer"]
    assert words[0][1] == 0 and words[1][2] < 0.2 <= session.now.probe_seconds / 2
    assert words[2][2] - words[2][1] >= 0.05
