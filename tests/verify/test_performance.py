"""Overlap against a trace made by hand, MFU by its formula, the whole measurement on the small project."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from fsdp_migrate.errors import JobError
from fsdp_migrate.reports import parity
from fsdp_migrate.verify import overlap, performance, timeline
from fsdp_migrate.verify.model import ArmName, LaunchOptions, ParityReport
from fsdp_migrate.verify.reference_job.config import ReferenceConfig
from fsdp_migrate.verify.run import verify_reference
from fsdp_migrate.verify.simulate import simulate
from fsdp_migrate.verify.timing import time_script


def kernel(name: str, begin: float, duration: float, category: str = "kernel") -> dict[str, object]:
    return {"ph": "X", "cat": category, "name": name, "ts": begin, "dur": duration}


# Microseconds: communication [0, 40) and [60, 100), computation [20, 70) in two streams, so that of 80 in
# communication 20 + 10 are hidden; copies and CPU operations are neither.
TRACE = [
    kernel("ncclDevKernel_AllGather_RING_LL", 0, 40),
    kernel("ampere_gemm", 20, 30),
    kernel("elementwise", 40, 30),
    kernel("ncclDevKernel_ReduceScatter_Sum_bf16", 60, 40),
    kernel("Memcpy DtoD", 90, 500),
    kernel("aten::mm", 0, 1000, "cpu_op"),
    {"ph": "i", "cat": "kernel", "name": "instant", "ts": 3},
]


def test_overlap_of_a_trace_made_by_hand(tmp_path: Path) -> None:
    found = overlap.overlap(TRACE)
    assert found is not None
    assert found.communication == pytest.approx(80e-6)
    assert found.computation == pytest.approx(50e-6)
    assert found.exposed == pytest.approx(50e-6)
    assert found.span == pytest.approx(100e-6)
    assert found.percent == pytest.approx(37.5)
    for name, opened in (("trace.json", open), ("trace.json.gz", gzip.open)):
        with opened(tmp_path / name, "wt") as stream:
            json.dump({"traceEvents": TRACE}, stream)
        assert overlap.overlap(overlap.read_trace(tmp_path / name)) == found


def test_trace_without_kernels_or_without_communication() -> None:
    assert overlap.overlap([kernel("aten::mm", 0, 9, "cpu_op")]) is None
    alone = overlap.overlap([kernel("gemm", 5, 10)])
    assert alone is not None and alone.percent is None and alone.exposed == 0


@pytest.mark.parametrize(
    ("chip", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA H200", 989e12),
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA L40S", 362e12),
        ("NVIDIA L4", 121e12),
        ("NVIDIA A10", 125e12),
        ("Some Chip", None),
    ],
)
def test_peak_of_a_chip(chip: str, peak: float | None) -> None:
    assert performance.peak_flops(chip) == peak


def write_rank(folder: Path, seconds: list[float], chip: str) -> None:
    folder.mkdir(parents=True)
    model = {"numel": 1100, "embedding": 100, "layers": 2, "width": 16, "heads": 2, "chip": chip}
    lines: list[dict[str, object]] = [{"event": "performance_model", **model}]
    for step, each in enumerate(seconds, 1):
        memory = {"forward": {"allocated": 100 * step, "reserved": 200}}
        lines.append(
            {
                "event": "performance",
                "step": step,
                "seconds": each,
                "tokens": 1024,
                "sequence": 8,
                "traced": step == len(seconds),
                "memory": memory,
                "collectives": {"all-gather": 4},
                "bytes": {"all-gather": 4096},
            }
        )
    (folder / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_figures_of_an_arm_by_their_formulas(tmp_path: Path) -> None:
    """Two ranks: a step is as long as the slower one; warm-up steps and the traced one do not count."""
    write_rank(tmp_path / "rank0", [9, 9, 0.5, 0.5, 0.5, 9], "NVIDIA H100 80GB HBM3")
    write_rank(tmp_path / "rank1", [9, 9, 0.4, 1.0, 0.5, 9], "NVIDIA H100 80GB HBM3")
    found = performance.measured(ArmName.CANDIDATE, [tmp_path], None)
    assert (found.steps, found.step_seconds) == (3, 0.5)
    assert found.tokens_per_second == 2048
    flop = 6 * 1000 + 12 * 2 * 16 * 8
    assert found.flop_per_token == flop
    assert found.mfu_percent == pytest.approx(100 * 2048 * flop / 989e12)
    assert found.memory == (("forward", 600, 200),)
    assert found.collectives == (("all-gather", 4, 4096),)
    assert found.overlap_percent is None


@dataclass
class ScriptedRun:
    """In the place of a verification: an arm leaves what it is told to, or fails."""

    records: Path
    options: LaunchOptions
    failing: ArmName
    ran: list[ArmName] = field(default_factory=list)

    def timed(self, _number: int) -> ScriptedRun:
        return self

    def time_script(self, _request: object, source: str, arm: ArmName) -> None:
        assert source == ("after" if arm is ArmName.CANDIDATE else "before")
        self.ran.append(arm)
        if arm is self.failing:
            raise JobError("DDP has no such method")
        if not (self.records / arm.value).exists():
            write_rank(self.records / arm.value / "rank0", [1, 1, 0.5, 0.5], "")


def test_original_that_does_not_run_under_ddp_loses_a_column_and_no_verdict(tmp_path: Path) -> None:
    run = ScriptedRun(tmp_path, LaunchOptions(also=("ddp",)), ArmName.DDP)
    found = time_script(run, None, "before", "after")  # type: ignore[arg-type]
    assert [arm.name for arm in found.performance] == [ArmName.ORIGINAL, ArmName.CANDIDATE]
    assert found.notes == ("the original does not run under ddp: DDP has no such method",)
    assert run.ran.count(ArmName.DDP) == 1  # not tried again in the second round
    run = ScriptedRun(tmp_path, LaunchOptions(also=("ddp",)), ArmName.CANDIDATE)
    with pytest.raises(JobError):
        time_script(run, None, "before", "after")  # type: ignore[arg-type]


def test_trace_of_an_arm_is_read_once_and_gives_overlap_and_timeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ScriptedRun(tmp_path, LaunchOptions(), ArmName.DDP)
    for arm in (ArmName.ORIGINAL, ArmName.CANDIDATE):
        write_rank(tmp_path / arm.value / "rank0", [1, 1, 0.5, 0.5], "NVIDIA H200")
        marks = [mark("forward", 0, 40), mark("backward", 40, 60), mark("optimizer", 100, 5)]
        (tmp_path / arm.value / "rank0" / "trace.json").write_text(
            json.dumps({"traceEvents": [*TRACE, *marks]})
        )
    read: list[Path] = []

    def counted(path: Path) -> list[dict[str, object]]:
        read.append(path)
        return overlap.read_trace(path)

    monkeypatch.setattr(performance, "read_trace", counted)
    found = time_script(run, None, "before", "after")  # type: ignore[arg-type]
    assert len(read) == len(set(read)) == 2
    assert [arm.overlap_percent for arm in found.performance] == [pytest.approx(37.5)] * 2
    assert [one.source[:6] for one in found.timelines] == ["phases"] * 2


@pytest.fixture(scope="module")
def measured() -> ParityReport:
    options = LaunchOptions(
        nproc=2, steps=2, device="cpu", timeout_s=100, profile=True, third_arm=True, also=("ddp",)
    )
    return verify_reference(ReferenceConfig(steps=2), options)


def test_both_arms_are_timed_in_turns_on_a_cpu(measured: ParityReport) -> None:
    assert measured.passed
    original, candidate, ddp = measured.performance
    assert (original.name, candidate.name, ddp.name) == (
        ArmName.ORIGINAL,
        ArmName.CANDIDATE,
        ArmName.DDP,
    )
    for arm in measured.performance:
        assert arm.steps == 2 * (10 - 2 - 2)  # two rounds of ten steps, without warm-up and traced steps
        assert arm.step_seconds is not None and 0 < arm.step_seconds < 5
        assert arm.tokens_per_second == pytest.approx(2 * 64 / arm.step_seconds, rel=1e-6)
        assert arm.overlap_percent is arm.exposed_seconds is arm.mfu_percent is None
        shape = ReferenceConfig().shape
        embedding = shape.vocab * shape.width
        attention = 12 * shape.layers * shape.width * 64
        assert arm.flop_per_token == 6 * (measured.original.numel - embedding) + attention
    by_name = {name: (calls, size) for name, calls, size in candidate.collectives}
    # Every parameter is scattered once a step in fp32; FSDP2 pads what the ranks cannot share evenly.
    assert by_name["reduce-scatter"][0] == 5
    assert 1 <= by_name["reduce-scatter"][1] / (4 * measured.original.numel) < 1.1
    assert "reduce-scatter" not in {name for name, *_ in ddp.collectives}  # DDP reduces below Python
    page = parity.render(measured, "md")
    assert "|  | original | candidate | ddp |" in page
    assert "not seen: made in C++ |" in page


def test_timeline_of_a_cpu_has_the_phases_of_one_step(measured: ParityReport) -> None:
    assert [one.name for one in measured.timelines] == [ArmName.ORIGINAL, ArmName.CANDIDATE, ArmName.DDP]
    for one in measured.timelines[:2]:
        at = {kind: (begin, end) for kind, begin, end in one.spans if kind != "communication"}
        assert list(at) == ["forward", "backward", "optimizer"]
        assert 0 == at["forward"][0] < at["forward"][1] <= at["backward"][0]
        assert at["backward"][1] <= at["optimizer"][0] < at["optimizer"][1] == pytest.approx(one.seconds)
        talks = [(begin, end) for kind, begin, end in one.spans if kind == "communication"]
        assert talks and all(0 <= begin < end <= one.seconds for begin, end in talks)
        # Gathers of the units in the forward pass, reductions in the backward pass.
        assert any(end <= at["forward"][1] for _, end in talks)
        assert any(at["backward"][0] <= begin < at["backward"][1] for begin, _ in talks)


def mark(phase: str, begin: float, duration: float) -> dict[str, object]:
    return kernel(f"fsdp-migrate: {phase}", begin, duration, "user_annotation")


def test_timeline_of_a_gpu_is_that_of_its_kernels() -> None:
    """Two steps in the trace, of which the second is shown; kernels run on after the host's phase."""
    first = [mark("forward", 0, 10), mark("backward", 10, 10), mark("optimizer", 20, 10)]
    second = [mark("forward", 40, 10), mark("backward", 50, 20), mark("optimizer", 70, 5)]
    kernels = [
        kernel("gemm", 5, 20),
        kernel("ncclDevKernel_AllGather", 42, 8),
        kernel("gemm", 48, 12),
        kernel("elementwise", 60, 30),
        kernel("Memcpy HtoD", 41, 50),
    ]
    found = timeline.of_trace(ArmName.CANDIDATE, [*first, *kernels, *second])
    assert found is not None
    assert found.seconds == pytest.approx(50e-6)
    spans = [(kind, round(begin * 1e6), round(end * 1e6)) for kind, begin, end in found.spans]
    assert spans == [
        ("forward", 0, 10),
        ("backward", 10, 30),
        ("optimizer", 30, 35),
        ("communication", 2, 10),
        ("computation", 8, 50),
    ]
    assert timeline.of_trace(ArmName.CANDIDATE, kernels) is None
    assert timeline.of_trace(ArmName.CANDIDATE, [*first, *second]) is None


def test_slivers_of_a_timeline_are_joined() -> None:
    spans = [("communication", at / 1e5, (at + 0.9) / 1e5) for at in range(1000)]
    found = timeline.of_spans(ArmName.ORIGINAL, [("forward", 0.0, 0.1), *spans], "")
    assert found is not None
    assert [kind for kind, *_ in found.spans] == ["forward", "communication"]


def test_report_of_a_cpu_says_what_does_not_apply(measured: ParityReport) -> None:
    for form in ("text", "md", "html"):
        page = " ".join(parity.render(measured, form).split())
        assert "does not apply: no GPU" in page
        assert "6 (N - N_embedding) + 12 x layers x width x sequence" in page
    on_gpu = replace(
        measured.performance[0], chip="NVIDIA H200", overlap_percent=81.25, exposed_seconds=0.0125,
        mfu_percent=41.5, memory=(("forward", 1 << 30, 2 << 30),),
    )  # fmt: skip
    page = parity.render(replace(measured, performance=(on_gpu, on_gpu)), "text")
    for words in ("81.2 %", "12.5 ms", "41.5 % of NVIDIA H200", "1,024 MiB, 2,048 reserved"):
        assert words in page


def test_every_shape_of_the_page_has_a_rule_of_its_class_alone(measured: ParityReport) -> None:
    """A bar and a span are filled because of what they are, not of what they are not."""
    page = parity.render(measured, "html")
    style, shapes = page[: page.index("</style>")], page[page.index("</style>") :]
    filled = {name for names, rule in re.findall(r"([^{}]+){([^{}]*)}", style) if "fill:" in rule
              for name in re.findall(r"\.([a-z0-9]+)", names)}  # fmt: skip
    used = re.findall(r'<rect class="([^"]+)"', shapes)
    assert {"f0", "f1", "f2", "f3"} <= set(used)
    assert all(len(filled & set(names.split())) == 1 for names in used), set(used)
    assert ":not(" not in style


def test_third_arm_stands_in_the_report(measured: ParityReport) -> None:
    assert "third arm, unsharded and in fp32" in measured.third
    assert measured.third in " ".join(parity.render(measured, "md").split())


def test_simulation_that_takes_too_long_is_a_job_that_failed() -> None:
    options = LaunchOptions(device="cpu", timeout_s=0.01)
    with pytest.raises(JobError, match="the FSDP1 arm took longer"):
        simulate(ReferenceConfig(), 8, options, lambda _: None)
