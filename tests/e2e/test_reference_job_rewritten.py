"""The FSDP1 arm of the reference job, rewritten by `rewrite`, trains as it did, to the last bit."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fsdp_migrate.verify.reference_job import fsdp1_arm

ROOT = Path(__file__).parents[2]
RANKS = ROOT / "tests" / "verify" / "reference_job_ranks.py"
CASES: dict[str, dict[str, Any]] = {
    "fp32 accumulated": {"accumulate": 2},
    "bf16 tied": {"dtype": "bf16", "tied": True},
    "shard_grad_op accumulated": {"strategy": "shard_grad_op", "accumulate": 2},
    "no_shard bf16": {"strategy": "no_shard", "dtype": "bf16"},
    "hybrid": {"strategy": "hybrid_shard"},
}


@pytest.fixture(scope="module")
def rewritten(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("rewritten")
    shutil.copy(fsdp1_arm.__file__, directory)
    done = subprocess.run(
        [sys.executable, "-m", "fsdp_migrate", "rewrite", str(directory)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return directory


def test_nothing_of_fsdp1_is_left(rewritten: Path) -> None:
    arm = (rewritten / "fsdp1_arm.py").read_text()
    assert "FullyShardedDataParallel" not in arm.replace("`FullyShardedDataParallel`", "")
    assert "fully_shard(" in arm + (rewritten / "fsdp2_sharding.py").read_text()
    assert "TODO" not in arm


def test_rewritten_arm_trains_to_the_last_bit(rewritten: Path, tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    cases = {name: {"clip": None, "steps": 2, "sequence": 32} | case for name, case in CASES.items()}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(RANKS), "2", str(result), json.dumps(cases), str(rewritten)],
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(result.read_text())
    for name in CASES:
        assert found[name]["fsdp2"] == found[name]["fsdp1"], name
        assert found[name]["weights differ by"] == 0.0, name
    assert found["hybrid"]["fsdp1"]["loss"] != found["fp32 accumulated"]["fsdp1"]["loss"]
