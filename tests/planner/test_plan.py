"""A plan from end to end, its report in every form, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner, Result

from fsdp_migrate.cli.app import app
from fsdp_migrate.errors import UsageError
from fsdp_migrate.planner.alternatives import best, ways
from fsdp_migrate.planner.gpus import gpu_of
from fsdp_migrate.planner.mesh import sharding_of
from fsdp_migrate.planner.model import (
    Alternative,
    ArmMemory,
    Category,
    Gpu,
    Inputs,
    Job,
    Peak,
    Phase,
    Settings,
)
from fsdp_migrate.planner.timeline import Event, Timeline, summarise

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "plan-report.schema.json").read_text())
MODEL = ("--model", "tests.planner.models:uneven", "--world-size", "3", "--wrap", "Block")
CALLED = ("--inputs", "tests.planner.models:ids_and_labels")


def plan(*words: str) -> Result:
    return CliRunner().invoke(app, ["plan", *words])


def test_search_takes_the_first_way_that_fits() -> None:
    done = plan(
        *MODEL, "--batch", "3", "--sequence", "7", "--gpu-memory", "51KiB", "--search", "--format", "json"
    )
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    jsonschema.Draft202012Validator(SCHEMA).validate(found)
    assert all(arm["fits"] for arm in found["arms"])
    fitting = [one for one in found["alternatives"] if one["arm"]["fits"]]
    chosen = found["alternatives"][found["chosen"]]
    assert chosen["settings"] == fitting[0]["settings"]
    alike = [one for one in fitting if one["settings"] == chosen["settings"]]
    assert chosen["batch"] == max(one["batch"] for one in alike)
    assert found["alternatives"][-1]["arm"]["fits"] is False  # the batch that no longer does
    for arm in (*found["arms"], *(one["arm"] for one in found["alternatives"])):
        assert arm["peak"]["size_bytes"] == sum(arm["peak"]["parts"].values())


def test_what_does_not_fit_is_said_and_exits_1(tmp_path: Path) -> None:
    page = tmp_path / "plan.md"
    done = plan(*MODEL, *CALLED, "--gpu-memory", "10k", "--format", "md", "--output", str(page))
    assert done.exit_code == 1, done.stderr
    text = page.read_text()
    assert re.search(r"FSDP2 does not fit the GPU \(9\.8 KiB\): \d+\.\d KiB over", text)
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert {row.count("|") for row in block.splitlines()} == {4}


def test_without_inputs_no_activations_are_told() -> None:
    done = plan(*MODEL, "--gpu-memory", "1M")
    assert done.exit_code == 0, done.stderr
    assert re.search(r"activations, at most +not known +not known", done.stdout)
    assert "are left for activations" in done.stdout and "fits" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.parametrize(
    ("words", "said", "hint"),
    [
        (("--mesh", "dp=1,tp=3"), "tp is not planned", "what one rank of the others holds"),
        (("--mesh", "shard=4"), "is of 4 ranks, and --world-size is 3", "multiply"),
        (("--mesh", "shard=3,dp=1"), "dp=1 is no dimension for FSDP", "replicate=8,shard=8"),
        (("--strategy", "hybrid_shard"), "is not said", "--mesh replicate=1,shard=3"),
        (("--gpu", "h100-pcie"), "no GPU of that name", "h100-80gb"),
        (("--gpu", "l4", "--gpu-memory", "1G"), "twice", "leave one"),
        (("--batch", "1"), "together", "--sequence"),
        (("--batch", "1", "--sequence", "2", *CALLED), "twice", "Leave one"),
        (("--loss", "a:b"), "a model that is called", "--inputs"),
        (("--optimizer", "lion"), "no such optimizer", "adamw"),
        (("--inputs", "tests.planner.models:uneven"), "in which is no tensor", "(args, kwargs)"),
        ((*CALLED, "--loss", "tests.planner.models:uneven"), "uneven", ""),
        (("--wrap", "Blok"), "no module of class Blok", "separated by commas"),
        (("--inputs", "tests.planner.models:floats"), "tests/planner/models.py", "--inputs"),
        (
            ("--inputs", "tests.planner.models:ids", "--model", "tests.planner.models:asking"),
            "nonzero",
            "experts",
        ),
        (("--model", "tests.planner.models:all_frozen"), "nothing to train", "as the job trains it"),
    ],
)
def test_refusals_say_what_and_what_next(words: tuple[str, ...], said: str, hint: str) -> None:
    done = plan(*MODEL, *words)
    assert done.exit_code == 2, done.stdout
    assert said in done.stderr and hint in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("mesh", "strategy", "expected"),
    [
        (None, "full_shard", (1, "full_shard")),
        ("dp=64", "shard_grad_op", (1, "shard_grad_op")),
        ("replicate=8,shard=8", "full_shard", (8, "full_shard")),
        ("shard=16, dp_replicate=4", "hybrid_shard", (4, "full_shard")),
    ],
)
def test_meshes(mesh: str | None, strategy: str, expected: tuple[int, str]) -> None:
    assert sharding_of(mesh, 64, strategy) == expected


def test_a_mesh_with_replicas_is_none_for_no_shard() -> None:
    with pytest.raises(UsageError, match="replicates over all ranks"):
        sharding_of("replicate=8,shard=8", 64, "no_shard")


def test_gpus_by_name() -> None:
    assert gpu_of("H100", None) == Gpu("H100-80GB", 81_559 << 20)
    assert gpu_of(None, "80GiB") == Gpu("", 80 << 30)
    with pytest.raises(UsageError):
        gpu_of("a100", None)  # of 40 or of 80 GB


def test_a_step_is_replayed_under_final_categories() -> None:
    """A parameter of 10; 5 gathered; 7 kept for the backward and 3 not; 4 of gradients of activations."""
    forward, backward = (Phase.FORWARD, "a"), (Phase.BACKWARD, "b")
    events = [
        Event(1, 5, *forward),
        Event(2, 3, *forward),
        Event(2, -3, *forward),
        Event(3, 7, *forward),
        Event(1, -5, *forward),
        Event(1, 5, *backward),
        Event(4, 4, *backward),
        Event(3, -7, *backward),
        Event(4, -4, *backward),
    ]
    roles = {0: Category.PARAMETERS, 1: Category.GATHERED}
    found = summarise(Timeline({0: 10}, events, roles))
    parts = {
        Category.PARAMETERS: 10,
        Category.GATHERED: 5,
        Category.ACTIVATIONS: 7,
        Category.TEMPORARY: 4,
    }
    assert found.peak == Peak(26, Phase.BACKWARD, "b", parts)
    assert found.activations == 7 and found.most[Category.TEMPORARY] == 4


def arm(size: int, activations: int | None) -> ArmMemory:
    return ArmMemory("FSDP2", 0, 1, 0, 1, 1, 1, 1, activations, Peak(size, Phase.BACKWARD, "", {}))


def test_ways_are_ordered_and_nothing_unknown_is_taken() -> None:
    job = Job("m", "Block", Settings(64), Inputs(batch=1, sequence=8))
    found = ways(job)
    assert len(found) == len(set(found)) == 8
    assert [one.checkpointing for one in found] == [False] * 4 + [True] * 4
    assert (found[0].strategy, found[0].replicate) == ("shard_grad_op", 8)
    tried = [Alternative(one, 1, arm(100 - 10 * place, 1)) for place, one in enumerate(found)]
    tried.append(Alternative(found[5], 2, arm(49, 1)))
    assert best(tried, Gpu("", 50)) == tried[-1]
    assert best(tried, Gpu("", 10)) is None
    assert best([Alternative(found[0], None, arm(1, None))], Gpu("", 50)) is None
