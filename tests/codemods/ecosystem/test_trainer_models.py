"""Programs that never say FSDP, whose trainer is told to use it by a launch script or a settings file."""

from __future__ import annotations

from pathlib import Path

import pytest
from small import rewrite_of

from codemods.model import Outcome

_SAVE = """\
def save(trainer, folder):
    state = trainer.model.state_dict()
    if trainer.args.should_save:
        trainer._save(folder, state_dict=state)


def other(trainer, folder, state):
    if trainer.is_fsdp_enabled:
        trainer.save_model(folder)
    else:
        trainer.model.save_pretrained(folder)
    trainer.model.save_pretrained(folder, state_dict=state)
    trainer.model.state_dict()  # fsdp-migrate: ignore[FM623] of a trainer without FSDP
    return trainer.model_wrapped.state_dict(), trainer.optimizer.state_dict()
"""
_SETTINGS = {
    "flags": {"run.sh": 'torchrun train.py --fsdp "full_shard auto_wrap"\n'},
    "Accelerate": {
        "fsdp.yaml": "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\n"
        "  fsdp_state_dict_type: FULL_STATE_DICT\n"
    },
}


@pytest.mark.parametrize("settings", _SETTINGS.values(), ids=_SETTINGS)
def test_state_dicts_of_a_trainers_model_are_found(settings: dict[str, str], tmp_path: Path) -> None:
    tests = _SAVE.split("\n\n")[0] + "\n"
    files = {"train.py": _SAVE, "tests/test_save.py": tests, **settings}
    done, changed = rewrite_of(tmp_path, files)
    assert set(changed) == {"train.py", *settings}
    assert changed["train.py"].count("# TODO(fsdp-migrate FM623)") == 2
    found = [(r.finding.place.path, r.finding.place.line) for r in done.reported if r.finding.code == "FM623"]
    assert found == [("train.py", 2), ("train.py", 13), ("train.py", 14)]
    ignored = [r.finding.place.line for r in done.reported if r.outcome is Outcome.IGNORED]
    assert ignored == [13]
    assert "FM905" not in {r.finding.code for r in done.reported}


def test_nothing_is_said_where_no_settings_change(tmp_path: Path) -> None:
    done, changed = rewrite_of(tmp_path, {"train.py": _SAVE, "run.sh": "torchrun train.py --fsdp\n"})
    assert not changed
    assert [r for r in done.reported if r.finding.code == "FM623"] == []
