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


def test_nothing_is_said_of_a_state_dict_that_another_rule_translates(tmp_path: Path) -> None:
    program = """\
        from torch.distributed.fsdp import FullStateDictConfig, StateDictType
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

        def save(trainer, path):
            config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
            with FSDP.state_dict_type(trainer.model, StateDictType.FULL_STATE_DICT, config):
                state = trainer.model.state_dict()
            trainer._save(path, state_dict=state)
        """
    done, changed = rewrite_of(tmp_path, {"train.py": program, **_SETTINGS["flags"]})
    assert "get_model_state_dict(trainer.model" in changed["train.py"]
    assert "FM623" not in {r.finding.code for r in done.reported}


def test_nothing_is_said_where_no_settings_change(tmp_path: Path) -> None:
    done, changed = rewrite_of(tmp_path, {"train.py": _SAVE, "run.sh": "torchrun train.py --fsdp\n"})
    assert not changed
    assert [r for r in done.reported if r.finding.code == "FM623"] == []


@pytest.mark.parametrize(
    ("test", "lines"),
    [
        ("not trainer.is_fsdp_enabled and rank == 0", [5]),
        ("trainer.is_fsdp_enabled and rank == 0", [3, 5]),
        ("trainer.is_fsdp_enabled", [3]),
        ("trainer.is_deepspeed_enabled", [5]),
    ],
)
def test_conditions_say_which_state_dicts_can_be_of_fsdp(tmp_path: Path, test: str, lines: list[int]) -> None:
    program = f"""\
        def save(trainer, rank, path):
            if {test}:
                trainer.model.save_pretrained(path)
            else:
                trainer.model.save_pretrained(path)
        """
    done, _ = rewrite_of(tmp_path, {"train.py": program, **_SETTINGS["flags"]})
    assert [r.finding.place.line for r in done.reported if r.finding.code == "FM623"] == lines
