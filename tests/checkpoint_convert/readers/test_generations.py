"""Files of several saves in one place: none is taken for all, and the message names one save's files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from checkpoint_convert.errors import CheckpointError
from checkpoint_convert.readers.generations import by_save
from checkpoint_convert.readers.open import open_source


def saved(step: int) -> dict[str, Any]:
    """A model of six layers, of which one is trained, as adapters are, and its optimizer."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(6)))
    model.requires_grad_(False)[5].weight.requires_grad_(True)
    optimizer = torch.optim.AdamW([model[5].weight])
    for _ in range(step):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}


def flat(step: int) -> dict[str, Any]:
    """One rank's file."""
    return {"model": {"_flat_param": torch.full((8,), float(step))}}


LAST: Mapping[str, tuple[Sequence[tuple[str, Any]], Sequence[str]]] = {
    "whole": ([("step_100.pt", saved(1)), ("step_200.pt", saved(2))], ["step_200.pt"]),
    "counted from 0": ([("epoch_0.pt", saved(1)), ("epoch_1.pt", saved(2))], ["epoch_1.pt"]),
    "pairs": (
        [
            (f"{part}_step_{step}.pt", saved(step // 100)[part])
            for part in ("model", "optimizer")
            for step in (100, 200)
        ],
        ["model_step_200.pt", "optimizer_step_200.pt"],
    ),
    "ranks": (
        [(f"step_{step}_rank_{rank}.pt", flat(step)) for step in (9, 10) for rank in (0, 1)],
        ["step_10_rank_0.pt", "step_10_rank_1.pt"],
    ),
    "folders": ([(f"step-{step}/model.pt", saved(step)["model"]) for step in (1, 2)], ["step-2/model.pt"]),
}


@pytest.mark.parametrize("case", LAST)
def test_no_save_is_taken_for_all(tmp_path: Path, case: str) -> None:
    files, last = LAST[case]
    for name, value in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        torch.save(value, tmp_path / name)
    source = tmp_path / "*" / "*" if case == "folders" else tmp_path
    with pytest.raises(CheckpointError) as caught:
        open_source([source]).__enter__()
    assert caught.value.hint.endswith(f"saves; the last one's: {' '.join(str(tmp_path / n) for n in last)}")


@pytest.mark.parametrize(
    "names",
    [
        ["rank0.pt", "rank1.pt"],
        ["model-00001-of-00002.bin", "model-00002-of-00002.bin", "model.bin"],
        ["best.pt", "last.pt"],
        ["state_0.pt", "state_1.pt"],
        ["rank0.pt", "rank1.pt", "rank3.pt"],
        ["ckpt_0.pt", "ckpt_1.pt", "ckpt_3.pt"],
        ["checkpoint-0.pt", "checkpoint-1.pt"],
        ["shard8.pt", "shard9.pt", "shard10.pt", "shard11.pt"],
    ],
)
def test_one_save(names: list[str]) -> None:
    paths = [Path("run7") / name for name in names]
    assert by_save(paths) == [paths]


def test_copies_on_ranks_are_one_and_what_differs_is_said(tmp_path: Path) -> None:
    """Buffers that each rank keeps for itself; a parameter would make them different checkpoints."""
    for rank in range(2):
        value = {"model": saved(1)["model"]}
        value["model"]["norm.running_mean"] = torch.full((3,), float(rank))
        torch.save(value | {"rng": torch.tensor([rank])}, tmp_path / f"rank{rank}.pt")
    with open_source([tmp_path]) as contents:
        [notice] = [notice for notice in contents.notices if notice.code == "CK102"]
    assert "norm.running_mean, rng differ between ranks" in notice.text
