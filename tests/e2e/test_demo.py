"""The demo command, start to end: the bundled FSDP1 project arrives at FSDP2 and proves it."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from fsdp_migrate.demo.losses import LossCurve

ROOT = Path(__file__).parents[2]
FSDP1_ONLY = (
    "FULL_STATE_DICT",
    "SHARDED_STATE_DICT",
    "optim_state_dict_to_load",
    "FSDP.optim_state_dict",
    "limit_all_gathers",
    "use_orig_params=",
    "no_sync",
    "torch.distributed.fsdp.wrap",
)


@dataclass(frozen=True)
class Demo:
    directory: Path
    done: subprocess.CompletedProcess[str]
    summary: dict[str, Any]

    def stage(self, title: str) -> dict[str, Any]:
        found = [stage for stage in self.summary["stages"] if stage["title"] == title]
        assert len(found) == 1, (title, self.summary)
        stage: dict[str, Any] = found[0]
        return stage


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    directory = tmp_path_factory.mktemp("demo") / "road"
    done = subprocess.run(
        [sys.executable, "-m", "fsdp_migrate", "demo", "--directory", str(directory), "--format", "json"],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.stdout.startswith("{"), done.stdout + done.stderr
    return Demo(directory, done, json.loads(done.stdout))


def test_every_stage_is_done(demo: Demo) -> None:
    assert {stage["title"]: stage["outcome"] for stage in demo.summary["stages"]} == {
        stage["title"]: "done" for stage in demo.summary["stages"]
    }, json.dumps(demo.summary, indent=1)
    assert len(demo.summary["stages"]) == 14
    assert demo.summary["outcome"] == "done"
    assert demo.done.returncode == 0, demo.done.stderr


@pytest.mark.parametrize(
    ("name", "run"),
    [
        ("full", "orig-params"),
        ("full-flat", "flat-params"),
        ("local", "orig-params"),
        ("local-flat", "flat-params"),
    ],
)
def test_resumed_losses_equal_those_of_the_uninterrupted_run(demo: Demo, name: str, run: str) -> None:
    reference = LossCurve.read(demo.directory / "fsdp1" / run / "log.jsonl")
    resumed = LossCurve.read(demo.directory / "fsdp2" / f"{name}-on-2" / "log.jsonl")
    assert sorted(resumed.train) == list(range(11, 21))
    assert resumed == reference.after(10)
    assert reference.train[20] < reference.train[1] - 1.0


def test_three_ranks_follow_two_but_for_rounding(demo: Demo) -> None:
    reference = LossCurve.read(demo.directory / "fsdp1" / "flat-params" / "log.jsonl").after(10)
    resumed = LossCurve.read(demo.directory / "fsdp2" / "local-flat-on-3" / "log.jsonl")
    assert resumed.train.keys() == reference.train.keys()
    for step, loss in reference.train.items():
        assert resumed.train[step] == pytest.approx(loss, rel=1e-5)


def test_rewritten_project_has_no_fsdp1_left_but_what_it_says(demo: Demo) -> None:
    modules = {path.name: path.read_text() for path in (demo.directory / "project").glob("*.py")}
    assert {"train.py", "sharding.py", "policies.py", "checkpoint.py"} <= modules.keys()
    assert "fully_shard(" in "".join(modules.values())
    for name, text in modules.items():
        for word in FSDP1_ONLY:
            assert word not in text, f"{word} in {name}"
    left = [
        (name, comment_above(text.splitlines(), number), line)
        for name, text in modules.items()
        for number, line in enumerate(text.splitlines())
        if "FSDP." in line
    ]
    assert [name for name, _, _ in left] == ["checkpoint.py", "checkpoint.py"]
    for _, comment, line in left:
        assert comment.startswith("# TODO(fsdp-migrate FM401)")
        assert "LOCAL_STATE_DICT" in line


def comment_above(lines: list[str], number: int) -> str:
    """The comment that ends just before a line."""
    above = [line.strip() for line in lines[:number]]
    return "\n".join(reversed(list(takewhile(lambda line: line.startswith("#"), reversed(above)))))


def test_each_stage_tells_what_to_type_and_how_it_went(demo: Demo) -> None:
    for stage in demo.summary["stages"]:
        assert f"$ {stage['command']}" in demo.done.stderr
        assert stage["result"]
    assert "Everything is in" in demo.done.stderr
