"""`benchmarks/gpu.sh --dry-run` runs to its end on a CPU, and writes one JSON and one table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_stages_take_no_longer_than_the_script_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    from gpu import stages

    assert "at most seven minutes" in (ROOT / "benchmarks" / "gpu.sh").read_text()
    measured = [stage for stage in stages(Path("out"), dry=False) if "--config" in stage.command][1:]
    assert len(measured) == 3  # speed, and memory twice: of as many tokens as training takes
    for stage in measured:
        tokens = [int(stage.command[stage.command.index(f"--{of}") + 1]) for of in ("batch", "sequence")]
        assert tokens[0] * tokens[1] >= 4096, stage
    assert sum(stage.seconds for stage in stages(Path("out"), dry=False)) <= 7 * 60


@pytest.mark.timeout(900)
def test_dry_run_goes_through_every_stage(tmp_path: Path) -> None:
    done = subprocess.run(
        [str(ROOT / "benchmarks" / "gpu.sh"), "--dry-run", str(tmp_path / "out")],
        env={**os.environ, "PYTHON": sys.executable, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=880,
        check=False,
    )
    found = json.loads((tmp_path / "out" / "gpu.json").read_text())
    assert done.returncode == 0, [stage for stage in found["stages"] if stage["code"]]
    by_name = {stage["name"]: stage["result"] for stage in found["stages"]}
    assert len(by_name) == 6
    assert by_name["parity, world size 1"]["passed"] is True
    assert len(by_name["speed, memory and overlap, bf16"]["performance"]) == 2
    for world in (8, 64):
        simulated = by_name[f"memory of rank 0 among {world}"]
        assert simulated["world"] == world
        assert [arm["name"] for arm in simulated["arms"]] == ["fsdp1", "fsdp2"]
        assert all(arm["peak_allocated"] > 50 << 20 for arm in simulated["arms"])
    variants = by_name["variants of FSDP2: plain, compiled, float8"]["variants"]
    assert [one["name"] for one in variants] == ["plain", "float8", "compiled"]
    assert variants[0]["seconds"] > 0
    table = (tmp_path / "out" / "gpu.txt").read_text()
    assert "parity holds" in table and table in done.stdout
