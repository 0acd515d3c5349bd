"""The FSDP1 arm of the reference job, rewritten by `rewrite`, trains as it did, to the last bit."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from fsdp_migrate.demo.ranks import RankJob
from fsdp_migrate.verify.reference_job import fsdp1_arm
from tests.program import run_program
from tests.ranks import forker

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
    done = run_program("rewrite", directory)
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
    words = (str(result), json.dumps(cases), str(rewritten))
    forker().run(RankJob(str(RANKS), words, 2, tmp_path, tmp_path / "logs", 120))
    found = json.loads(result.read_text())
    for name in CASES:
        assert found[name]["fsdp2"] == found[name]["fsdp1"], name
        assert found[name]["weights differ by"] == 0.0, name
    assert found["hybrid"]["fsdp1"]["loss"] != found["fp32 accumulated"]["fsdp1"]["loss"]
