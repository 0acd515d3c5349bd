"""Suppression comments: what they hold for, and what is said of those without a reason or a purpose."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from reporting import program, write

HEAD = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def show(model):
    model = FSDP(model)
"""


def outcomes(folder: Path, body: str, *options: str) -> dict[tuple[int, str], str]:
    """(line, code) -> outcome of what is found below line 5."""
    write(folder, {"a.py": HEAD + body})
    told = program("rewrite", "--check", "--format", "json", *options, ".", cwd=folder)
    assert told.code in (0, 1), told.err
    return {(f["line"], f["code"]): f["outcome"] for f in json.loads(told.out)["findings"] if f["line"] > 5}


@pytest.mark.parametrize(
    "body",
    [
        "    print(model._handle)  # fsdp-migrate: ignore[FM507] only printed\n",
        "    print(model._handle)  # fsdp-migrate: ignore[FM301, FM507] only printed\n",
        "    print(model._handle)  # fsdp-migrate: ignore only printed\n",
        "    # fsdp-migrate: ignore[FM507] only printed\n    print(model._handle)\n",
        "    # fsdp-migrate: ignore[FM507] only printed\n    print(\n        model._handle,\n    )\n",
        "    print(\n        model._handle,  # fsdp-migrate: ignore[FM507] only printed\n    )\n",
    ],
    ids=["same line", "two codes", "every code", "line above", "above the statement", "inside the statement"],
)
def test_comment_suppresses(tmp_path: Path, body: str) -> None:
    (outcome,) = outcomes(tmp_path, body).values()
    assert outcome == "ignored"


@pytest.mark.parametrize(
    "body",
    [
        "    print(model._handle)  # fsdp-migrate: ignore[FM301] only printed\n",
        "    # fsdp-migrate: ignore[FM507] only printed\n    print('')\n    print(model._handle)\n",
        "    print('# fsdp-migrate: ignore[FM507] only printed', model._handle)\n",
    ],
    ids=["another code", "another statement", "in a string"],
)
def test_comment_that_does_not_reach_suppresses_nothing(tmp_path: Path, body: str) -> None:
    found = outcomes(tmp_path, body)
    assert [outcome for (_, code), outcome in found.items() if code == "FM507"] == ["todo"]
    notes = [outcome for (_, code), outcome in found.items() if code == "FM905"]
    assert notes == ([] if "'#" in body else ["note"])


def test_suppression_without_a_reason_is_work_left(tmp_path: Path) -> None:
    body = "    print(model._handle)  # fsdp-migrate: ignore[FM507]\n"
    assert outcomes(tmp_path, body) == {(6, "FM507"): "ignored", (6, "FM904"): "todo"}
    assert program("rewrite", "--check", "--ignore", "FM1,FM5,FM904", ".", cwd=tmp_path).code == 0


def test_suppression_without_a_reason_gets_no_comment_of_ours(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": HEAD + "    print(model._handle)  # fsdp-migrate: ignore[FM507]\n"})
    assert program("rewrite", ".", cwd=tmp_path).code == 1
    assert "TODO" not in (tmp_path / "a.py").read_text()


def test_useless_suppression_is_not_judged_by_half_a_run(tmp_path: Path) -> None:
    body = "    print(model._handle)  # fsdp-migrate: ignore[FM507] only printed\n"
    assert outcomes(tmp_path, body, "--select", "FM1") == {}
