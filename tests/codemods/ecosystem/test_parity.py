"""Accelerate's files before and after train alike on 4 ranks, and shard over the same number of ranks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from tool import rewrite_in_place

from ecosystem.launched import environment_of
from fsdp_migrate.demo.ranks import PRELOAD, RankForker, RankJob

WORKER = Path(__file__).with_name("parity_worker.py")
TOP = {
    "compute_environment": "LOCAL_MACHINE",
    "distributed_type": "FSDP",
    "machine_rank": 0,
    "main_process_ip": "127.0.0.1",
    "main_process_port": 29500,
    "mixed_precision": "no",
    "num_processes": 4,
}
WRAPPED = {"fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "fsdp_transformer_layer_cls_to_wrap": "Block"}
BLOCKS = {
    "full": {"fsdp_sharding_strategy": "FULL_SHARD", **WRAPPED},
    "grad_op": {"fsdp_sharding_strategy": 2, **WRAPPED, "fsdp_use_orig_params": True},
    "hybrid": {"fsdp_sharding_strategy": "HYBRID_SHARD", **WRAPPED},
    "hybrid_zero2": {"fsdp_sharding_strategy": "HYBRID_SHARD_ZERO2", **WRAPPED},
    "one_unit": {"fsdp_sharding_strategy": "FULL_SHARD", "fsdp_auto_wrap_policy": "NO_WRAP"},
}
QUIET = {"FSDP_CPU_RAM_EFFICIENT_LOADING": "false", "FSDP_SYNC_MODULE_STATES": "false"}
# What the plugin reads; how the launcher starts its processes is not taken along.
TAKEN = ("FSDP_", "PARALLELISM_CONFIG_", "ACCELERATE_USE_PARALLELISM_CONFIG")


def settings_of(path: Path) -> dict[str, str]:
    env = environment_of(["--config_file", str(path)])
    return {key: value for key, value in env.items() if key.startswith(TAKEN)} | QUIET


Run = dict[str, object]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[Run]]]:
    """Case -> [before, after] -> rank."""
    folder = tmp_path_factory.mktemp("parity")
    cases = {}
    for name, block in BLOCKS.items():
        path = folder / name / "config.yaml"
        path.parent.mkdir()
        machines = 2 if name.startswith("hybrid") else 1
        path.write_text(yaml.safe_dump({**TOP, "num_machines": machines, "fsdp_config": block}))
        before = settings_of(path)
        assert rewrite_in_place(path.parent).open_codes == []
        cases[name] = [before, settings_of(path)]
    (folder / "cases.json").write_text(json.dumps(cases))
    arguments = (str(folder / "cases.json"), str(folder))
    with RankForker((*PRELOAD, "accelerate.utils.fsdp_utils")) as forker:
        forker.run(RankJob(str(WORKER), arguments, 4, folder, folder / "logs", timeout_s=240))
    ranks = [folder / f"rank{rank}.json" for rank in range(4)]
    found = [json.loads(path.read_text()) for path in ranks]
    return {name: [[rank[name][arm] for rank in found] for arm in (0, 1)] for name in BLOCKS}


@pytest.mark.parametrize("name", BLOCKS)
def test_losses_are_equal(runs: dict[str, list[list[Run]]], name: str) -> None:
    """Bit for bit in groups of two; sums over four ranks follow the order of the layout, which differs."""
    before, after = ([rank["losses"] for rank in arm] for arm in runs[name])
    if name.startswith("hybrid"):
        assert before == after
    for one, other in zip(before, after, strict=True):
        assert one == pytest.approx(other, rel=5e-7)
    assert len({json.dumps(losses) for losses in before}) == 4  # every rank has its own data


@pytest.mark.parametrize(
    ("name", "shards"), [("full", 4), ("hybrid", 2), ("hybrid_zero2", 2), ("one_unit", 4)]
)
def test_a_rank_holds_the_share_it_held(runs: dict[str, list[list[Run]]], name: str, shards: int) -> None:
    total = 4 * (3 * (8 * 12 + 12 + 12 * 8 + 8) + 8 * 4 + 4)
    for rank in runs[name][1]:
        held = rank["bytes"]
        assert isinstance(held, int)
        assert abs(held - total / shards) < 0.15 * total
