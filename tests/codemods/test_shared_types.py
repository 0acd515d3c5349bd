"""Configuration types and what takes their values change together or not at all, whatever keeps one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from codemods.model import Options, Outcome, Rewrite
from codemods.plan import plan_rewrite
from codemods.sources import find_files

_CONFIG = """\
from dataclasses import dataclass, field

import torch
from torch.distributed.fsdp import MixedPrecision, ShardingStrategy, StateDictType


@dataclass
class Config:
    strategy: ShardingStrategy = ShardingStrategy.FULL_SHARD
    kind: StateDictType = StateDictType.FULL_STATE_DICT
    precision: MixedPrecision = field(
        default_factory=lambda: MixedPrecision(param_dtype=torch.bfloat16)
    )


STRATEGIES = {name: ShardingStrategy[name] for name in ("FULL_SHARD", "NO_SHARD")}
"""
_WRAP = """\
from config import STRATEGIES, Config
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def wrap(model, cfg: Config, name):
    return FSDP(model, sharding_strategy=STRATEGIES[name], mixed_precision=cfg.precision)
"""
_SAVE = """\
from config import Config
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def save(model, cfg: Config):
    with FSDP.state_dict_type(model, cfg.kind):
        return model.state_dict()
"""
_FILES = {"config.py": _CONFIG, "wrap.py": _WRAP, "save.py": _SAVE}


def _rewritten(
    folder: Path, files: dict[str, str], only: set[str] | None = None
) -> tuple[Rewrite, dict[str, str]]:
    for name, text in files.items():
        (folder / name).write_text(text)
    plan = plan_rewrite(
        folder, find_files(folder, [folder]), Options(), only=None if only is None else frozenset(only)
    )
    for change in plan.changes:
        (folder / change.path).write_bytes(change.after)
    return plan, {name: (folder / name).read_text() for name in files}


def test_everything_moves_where_everything_may_change(tmp_path: Path) -> None:
    plan, after = _rewritten(tmp_path, _FILES)
    assert [r for r in plan.reported if r.outcome is Outcome.TODO] == []
    assert "torch.distributed.fsdp" not in "".join(after.values())
    helper = (tmp_path / "fsdp2_sharding.py").read_text()
    assert "class ShardingStrategy" in helper and "class StateDictType" in helper


@dataclass(frozen=True)
class Obstacle:
    """What keeps one place as it is.

    Attributes:
        files: the changed sources.
        only: the files that may be changed.
        stays: types of the configuration that must stay torch's.
        moves: types that are not concerned and move.
    """

    files: dict[str, str]
    only: set[str] | None
    stays: tuple[str, ...]
    moves: tuple[str, ...]


_SUPPRESSED_WRAP = _WRAP.replace(
    "    return FSDP(", "    # fsdp-migrate: ignore[FM102] kept for now\n    return FSDP("
)
_SUPPRESSED_SAVE = _SAVE.replace("    with ", "    # fsdp-migrate: ignore[FM401] kept for now\n    with ")
_SUPPRESSED_USE = _CONFIG.replace(
    "\n\nSTRATEGIES = ", "\n\n# fsdp-migrate: ignore[FM201] read by others\nSTRATEGIES = "
)
_WRAP_TYPES = ("ShardingStrategy", "MixedPrecision")
OBSTACLES = {
    "the wrap call is ignored": Obstacle(
        {**_FILES, "wrap.py": _SUPPRESSED_WRAP}, None, _WRAP_TYPES, ("StateDictType",)
    ),
    "the state dict context is ignored": Obstacle(
        {**_FILES, "save.py": _SUPPRESSED_SAVE}, None, ("StateDictType",), _WRAP_TYPES
    ),
    "one use of a type is ignored": Obstacle(
        {**_FILES, "config.py": _SUPPRESSED_USE}, None, _WRAP_TYPES, ("StateDictType",)
    ),
    "the wrap's file may not be changed": Obstacle(
        _FILES, {"config.py", "save.py"}, _WRAP_TYPES, ("StateDictType",)
    ),
    "the configuration may not be changed": Obstacle(
        _FILES, {"wrap.py", "save.py"}, (*_WRAP_TYPES, "StateDictType"), ()
    ),
}


@pytest.mark.parametrize("name", OBSTACLES)
def test_a_place_that_stays_keeps_what_shares_its_values(name: str, tmp_path: Path) -> None:
    obstacle = OBSTACLES[name]
    plan, after = _rewritten(tmp_path, obstacle.files, obstacle.only)
    config = after["config.py"]
    torchs = (
        config.split("from torch.distributed.fsdp import ")[1].split("\n")[0]
        if "fsdp import " in config
        else ""
    )
    for kept in obstacle.stays:
        assert kept in torchs, kept
    for moved in obstacle.moves:
        assert moved not in torchs.split(", "), moved
    stays_wrapped = "ShardingStrategy" in obstacle.stays
    assert ("FSDP(model" in after["wrap.py"]) is stays_wrapped
    assert ("FSDP.state_dict_type" in after["save.py"]) is ("StateDictType" in obstacle.stays)
    told = [r.detail for r in plan.reported if r.outcome is Outcome.TODO]
    assert any(detail.startswith("changes only together with what shares its values: ") for detail in told)
