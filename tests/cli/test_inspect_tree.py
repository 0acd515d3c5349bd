"""`inspect-ckpt --tree`, and the options that say what a checkpoint leaves open."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner, Result

from fsdp_migrate.cli.app import app


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)])


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)) for _ in range(3)])
        self.layers.append(nn.Sequential(nn.Linear(4, 8, bias=False)))


@pytest.fixture
def full(tmp_path: Path) -> Path:
    model = Net()
    optimizer = torch.optim.SGD(model.embed.parameters(), lr=0.5, momentum=0.9)
    model.embed(torch.arange(3)).sum().backward()
    optimizer.step()
    path = tmp_path / "full.pt"
    saved = optimizer.state_dict()
    saved["state"] = {"embed.weight": saved["state"][0]}
    saved["param_groups"] = [{"lr": 0.5, "momentum": 0.9, "params": ["embed.weight"]}]
    torch.save({"model": model.state_dict(), "optimizer": saved, "epoch": 3}, path)
    return path


def test_a_tree(full: Path) -> None:
    done = call("inspect-ckpt", full, "--tree")
    assert done.exit_code == 0
    assert (
        done.stdout
        == """\
checkpoint: 15 tensors, 784 B
├── model: 14 tensors, 624 B
│   ├── embed.weight: float32 10 x 4, 160 B
│   └── layers: 13 tensors, 464 B
│       ├── 0..2 (3 alike, each): 4 tensors, 112 B
│       │   ├── 0: 2 tensors, 80 B
│       │   │   ├── weight: float32 4 x 4, 64 B
│       │   │   └── bias: float32 4, 16 B
│       │   └── 1: 2 tensors, 32 B
│       │       ├── weight: float32 4, 16 B
│       │       └── bias: float32 4, 16 B
│       └── 3.0.weight: float32 8 x 4, 128 B
├── optim: 1 tensor, 160 B
│   ├── state.embed.weight.momentum_buffer: float32 10 x 4, 160 B
│   └── param_groups.0
│       ├── lr: 0.5
│       └── momentum: 0.9
└── extras.epoch: 3
"""
    )


def test_a_branch_and_its_depth(full: Path) -> None:
    done = call("inspect-ckpt", full, "--under", "model.layers", "--depth", "1")
    assert done.stdout.splitlines() == [
        "model.layers: 13 tensors, 464 B",
        "├── 0..2 (3 alike, each): 4 tensors, 112 B",
        "└── 3.0.weight: float32 8 x 4, 128 B",
    ]
    missing = call("inspect-ckpt", full, "--under", "model.layer")
    assert missing.exit_code == 2
    assert "there is no 'layer'" in missing.stderr and "embed, layers" in missing.stderr


def test_a_tensor_with_others_below_its_name(tmp_path: Path) -> None:
    """As bitsandbytes saves a quantized weight."""
    weights = {
        "a.weight": torch.zeros(8, 1),
        "a.weight.absmax": torch.zeros(2),
        "b.weight": torch.zeros(8, 1),
        "b.weight.absmax": torch.zeros(2),
        "b.weight.quant_map": torch.zeros(4),
    }
    torch.save(weights, tmp_path / "quantized.pt")
    done = call("inspect-ckpt", tmp_path / "quantized.pt", "--under", "model")
    assert done.stdout.splitlines() == [
        "model: 5 tensors, 96 B",
        "├── a.weight: float32 8 x 1; with what is below 2 tensors, 40 B",
        "│   └── absmax: float32 2, 8 B",
        "└── b.weight: float32 8 x 1; with what is below 3 tensors, 56 B",
        "    ├── absmax: float32 2, 8 B",
        "    └── quant_map: float32 4, 16 B",
    ]


@pytest.mark.parametrize("text", ["{}x", '{"a": 1}', '["a"]', "[[1]]"])
def test_groups_that_are_none(full: Path, tmp_path: Path, text: str) -> None:
    groups = tmp_path / "groups.json"
    groups.write_text(text)
    done = call("inspect-ckpt", full, "--param-groups", groups)
    assert done.exit_code == 2
    assert f"--param-groups {groups}: " in done.stderr


def test_groups_and_ignored_reach_the_reader(
    full: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from checkpoint_convert.readers import open as door

    seen: list[object] = []
    monkeypatch.setattr(door, "detect", lambda files, paths, options, opened: seen.append(options))
    groups = tmp_path / "groups.json"
    groups.write_text(json.dumps([["a.weight"], ["a.bias"]]))
    for command in (["inspect-ckpt", full], ["convert-ckpt", full, tmp_path / "out"]):
        call(*command, "--param-groups", groups, "--ignored", "head,zoo:Adapter")
    assert [(options.param_groups, options.ignored) for options in seen] == [  # type: ignore[attr-defined]
        ([["a.weight"], ["a.bias"]], "head,zoo:Adapter")
    ] * 2


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_a_bound_that_cannot_be_kept_is_refused(full: Path, tmp_path: Path, more: list[str]) -> None:
    done = call("convert-ckpt", full, tmp_path / "out", "--max-memory", "1MiB", *more)
    assert done.exit_code == 2
    assert "this conversion takes about" in done.stderr and "1,048,576 are allowed" in done.stderr
    assert not (tmp_path / "out").exists() and not (tmp_path / "out.partial").exists()
    done = call("convert-ckpt", full, "memory://bounded", "--max-memory", "1MiB", *more)
    assert done.exit_code == 2 and "1,048,576 are allowed" in done.stderr
    done = call("convert-ckpt", full, tmp_path / "out", "--max-memory", "8GiB", *more)
    assert done.exit_code == 0
