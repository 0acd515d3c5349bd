"""The stages of `benchmarks/gpu.sh`; one that fails is written down and the next one runs."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Stage:
    """One program and how long it may run.

    Args:
        result: a JSON file that it writes, kept in the summary; "" without one.
    """

    name: str
    command: tuple[str, ...]
    seconds: float
    result: str = ""


def stages(out: Path, *, dry: bool) -> list[Stage]:
    """What is run, in the order of worth: time may run out."""
    python = sys.executable
    verify = (
        python,
        "-m",
        "fsdp_migrate",
        "verify",
        "--device",
        "cpu" if dry else "cuda",
        "--format",
        "json",
    )
    size = "tiny" if dry else "medium"
    found = [
        Stage(
            "parity, world size 1",
            (*verify, "--nproc", "1", "--steps", "3", "--config", size, "--output", str(out / "parity.json")),
            60,
            "parity.json",
        ),
        Stage(
            "speed, memory and overlap, bf16",
            (
                *(*verify, "--nproc", "1", "--steps", "3", "--config", "tiny" if dry else "large"),
                *("--dtype", "bf16", "--profile", "--output", str(out / "speed.json")),
                *_tokens(4, 2048, dry=dry),
            ),
            100,
            "speed.json",
        ),
    ]
    for world in (8, 64):
        name = f"memory{world}.json"
        found.append(
            Stage(
                f"memory of rank 0 among {world}",
                (
                    *(*verify, "--simulate-world", str(world), "--config", "tiny" if dry else "8b"),
                    *("--dtype", "bf16", "--output", str(out / name)),
                    *_tokens(1, 4096, dry=dry),
                ),
                60,
                name,
            )
        )
    found.append(
        Stage(
            "variants of FSDP2: plain, compiled, float8",
            (
                *(python, "benchmarks/variants.py", "--output", str(out / "variants.json")),
                *(("--dry-run",) if dry else ()),
            ),
            80,
            "variants.json",
        )
    )
    tests = (
        ("tests/verify/test_performance.py", "-k", "trace or chip")
        if dry
        else ("tests/verify/gpu/gpu_checks.py",)
    )
    found.append(Stage("tests", (python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests), 60))
    return found


def _tokens(batch: int, sequence: int, *, dry: bool) -> tuple[str, ...]:
    """As many as keep a GPU busy: with few of them the optimizer takes the time, and weights the memory."""
    return () if dry else ("--batch", str(batch), "--sequence", str(sequence))


def run(stage: Stage, out: Path, *, patience: int) -> dict[str, object]:
    """Run one stage; what came of it.

    Args:
        patience: times its limit that it may take.
    """
    began = time.monotonic()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    try:
        done = subprocess.run(
            stage.command,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=stage.seconds * patience,
            check=False,
        )
        code, said = done.returncode, (done.stdout + done.stderr)[-1500:]
    except subprocess.TimeoutExpired:
        code, said = 124, f"stopped after {stage.seconds * patience:g} s"
    file = out / stage.result
    result = json.loads(file.read_text()) if stage.result and file.exists() else None
    seconds = round(time.monotonic() - began, 1)
    print(f"{stage.name}: {'done' if code == 0 else f'exit code {code}'}, {seconds} s", flush=True)
    return {"name": stage.name, "code": code, "seconds": seconds, "said": said, "result": result}


def table(results: list[dict[str, object]]) -> str:
    """A line per stage, and the figures of those that have some."""
    lines = []
    for stage in results:
        lines.append(
            f"{stage['name']:<44}{'ok' if stage['code'] == 0 else 'failed':>8}{stage['seconds']:>8} s"
        )
        if stage["code"] != 0:
            lines += [f"    {line}" for line in str(stage["said"]).splitlines()[-1:]]
        lines += [f"    {line}" for line in figures(stage["result"])]
    return "\n".join(lines) + "\n"


def figures(result: object) -> list[str]:
    """The figures of one stage, in words."""
    if not isinstance(result, dict):
        return []
    found = []
    if "passed" in result:
        found.append("parity holds" if result["passed"] else "parity does not hold")
    for arm in result.get("performance", ()):
        step, mfu, overlap = arm["step_seconds"], arm["mfu_percent"], arm["overlap_percent"]
        words = [f"{arm['name']}: step {step * 1e3:.1f} ms" if step else f"{arm['name']}: no step timed"]
        words += [f"MFU {mfu:.1f} %"] if mfu is not None else []
        words += [f"overlap {overlap:.1f} %"] if overlap is not None else []
        found.append(", ".join(words))
    for arm in result.get("arms", ()):
        peaks = arm["peak_allocated"] / 2**30, arm["peak_reserved"] / 2**30
        found.append(f"{arm['name']}: {peaks[0]:.2f} GiB allocated, {peaks[1]:.2f} GiB reserved at the peak")
    for variant in result.get("variants", ()):
        found.append(f"{variant['name']}: {variant['words']}")
    return found


def main() -> int:
    """Run every stage, write both files; 1 where a stage failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, nargs="?", default=Path("gpu-results"))
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args()
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    results = [
        run(stage, out, patience=4 if options.dry_run else 1) for stage in stages(out, dry=options.dry_run)
    ]
    (out / "gpu.json").write_text(
        json.dumps({"dry run": options.dry_run, "stages": results}, indent=2) + "\n"
    )
    (out / "gpu.txt").write_text(table(results))
    print(table(results), end="")
    return 1 if any(stage["code"] for stage in results) else 0


if __name__ == "__main__":
    sys.exit(main())
