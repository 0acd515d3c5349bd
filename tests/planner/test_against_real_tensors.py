"""What is measured on fake tensors is what real ones take, to the byte: a step, and what three ranks hold."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from typing import Any

import pytest

from fsdp_migrate.planner import sharding
from fsdp_migrate.planner.fake_world import fake_group
from fsdp_migrate.planner.model import Arm, ArmMemory, Category, Peak
from fsdp_migrate.planner.own_model import build
from fsdp_migrate.planner.plan import ARMS, fake_arm, measure
from fsdp_migrate.planner.recorder import Recorder
from tests.planner.cases import HELD, JOBS, WORLD
from tests.ranks import run_module

FAKES: dict[tuple[str, str], Arm] = {}


def fake(case: str, name: str) -> ArmMemory:
    """The arm on fake tensors, measured once."""
    if (case, name) not in FAKES:
        FAKES[case, name] = fake_arm(name, JOBS[case]).arm
    found = FAKES[case, name]
    assert isinstance(found, ArmMemory), found
    return found


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    where = tmp_path_factory.mktemp("ranks")
    run_module("tests.planner.measured_ranks", WORLD, where, where)
    return [json.loads((where / f"rank{rank}.json").read_text()) for rank in range(WORLD)]


@pytest.mark.parametrize("name", ARMS)
@pytest.mark.parametrize("case", JOBS)
def test_steps_take_the_same_on_real_tensors(case: str, name: str) -> None:
    told, job = fake(case, name), JOBS[case]
    recorder = Recorder(fake=False)
    with fake_group(WORLD, told.rank), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mesh = sharding.mesh_of(job.settings)
        with recorder.watch():
            real = measure(name, build(job), job, mesh, recorder).arm
    assert isinstance(real, ArmMemory)
    assert without_rank_map(real, mesh.ndim) == told


def without_rank_map(arm: ArmMemory, dimensions: int) -> ArmMemory:
    """Real tensors include those in which a mesh of two dimensions keeps its ranks, on the host."""
    size = 4 * WORLD if dimensions > 1 and arm.name == "FSDP2" else 0
    parts = dict(arm.peak.parts)
    if size:
        parts[Category.TEMPORARY] -= size
    peak = Peak(arm.peak.size_bytes - size, arm.peak.phase, arm.peak.unit, parts)
    return replace(arm, peak=peak)


@pytest.mark.parametrize("name", ARMS)
@pytest.mark.parametrize("case", HELD)
def test_the_fullest_of_real_ranks_holds_what_is_told(
    case: str, name: str, ranks: list[dict[str, Any]]
) -> None:
    told = fake(case, name)
    seen = [rank[f"{case}: {name}"] for rank in ranks]
    assert seen[told.rank]["optimizer_state"] == told.optimizer_state
    assert seen[told.rank]["gradients"] == told.gradients
    for key in ("optimizer_state", "gradients", "parameters"):
        assert max(one[key] for one in seen) <= getattr(told, key)
    if case not in ("frozen units", "adapters"):  # there the optimizer holds some of the parameters
        assert {one["parameters"] for one in seen} == {told.parameters}
