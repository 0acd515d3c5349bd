"""Programs that never say FSDP, whose trainer is told to use it by a launch script or a settings file."""

from __future__ import annotations

from pathlib import Path

import pytest
from small import rewrite_of

from codemods.launched_programs import may_be_launched
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


_PREPARED = """\
import torch
from accelerate import Accelerator

def main(model, loader, folder):
    accelerator = Accelerator()
    optimizer = torch.optim.AdamW(model.parameters())
    torch.save(optimizer.state_dict(), folder)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    print(sum(p.numel() for p in model.parameters()))
    for batch in loader:
        accelerator.backward(model(batch))
        print([p.grad.norm() for p in model.parameters()])
        torch.nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], 1.0)
        optimizer.step()
    torch.save(accelerator.get_state_dict(model), folder)
    torch.save(accelerator.unwrap_model(model).state_dict(), folder)
    torch.save(optimizer.state_dict(), folder)
    accelerator.unwrap_model(model).save_pretrained(folder)
    if accelerator.distributed_type == "DEEPSPEED":
        torch.save(model.state_dict(), folder)

def evaluate(model):
    accelerator = Accelerator()
    model = accelerator.prepare(model)
    return model
"""


@pytest.mark.parametrize("settings", _SETTINGS.values(), ids=_SETTINGS)
def test_what_is_done_with_prepared_models_is_found(settings: dict[str, str], tmp_path: Path) -> None:
    files = {"train.py": _PREPARED, "tests/test_train.py": _PREPARED, **settings}
    done, changed = rewrite_of(tmp_path, files)
    found = [
        (r.finding.place.line, r.finding.code, r.outcome)
        for r in done.reported
        if r.finding.place.path.endswith(".py")
    ]
    assert found == [
        (9, "FM515", Outcome.NOTE),
        (12, "FM514", Outcome.NOTE),
        (13, "FM302", Outcome.NOTE),
        (16, "FM402", Outcome.TODO),
        (17, "FM409", Outcome.NOTE),
        (18, "FM402", Outcome.NOTE),
        (24, "FM624", Outcome.NOTE),
    ]
    assert set(changed) == {"train.py", *settings}
    kept = [line for line in changed["train.py"].splitlines() if "fsdp-migrate" not in line]
    assert [line for line in kept if not line.lstrip().startswith("#  ")] == _PREPARED.splitlines()
    _, changed = rewrite_of(tmp_path, changed | {"tests/test_train.py": _PREPARED})
    assert not changed


def test_nothing_is_said_of_prepared_models_where_no_settings_change(tmp_path: Path) -> None:
    done, changed = rewrite_of(tmp_path, {"train.py": _PREPARED, "run.sh": "accelerate launch train.py\n"})
    assert not changed and not done.reported


@pytest.mark.parametrize(
    ("condition", "is_said"),
    [
        ("accelerator.distributed_type == DistributedType.FSDP", True),
        ("accelerator.distributed_type != DistributedType.FSDP", False),
        ("not accelerator.distributed_type == DistributedType.FSDP", False),
        ('accelerator.distributed_type not in ("FSDP", "DEEPSPEED")', False),
        ("accelerator.distributed_type != DistributedType.NO", True),
        ("accelerator.is_main_process", True),
    ],
)
def test_conditions_say_which_prepared_models_can_be_of_fsdp(
    condition: str, is_said: bool, tmp_path: Path
) -> None:
    program = f"""\
from accelerate import Accelerator, DistributedType

def main(model, optimizer):
    accelerator = Accelerator()
    model, optimizer = accelerator.prepare(model, optimizer)
    if {condition}:
        return model.state_dict()
    return model.state_dict()
"""
    done, _ = rewrite_of(tmp_path, {"train.py": program, **_SETTINGS["flags"]})
    lines = [r.finding.place.line for r in done.reported if r.finding.code == "FM402"]
    is_decided = "FSDP" in condition
    assert lines == [line for line, said in ((7, is_said), (8, not is_decided or not is_said)) if said]


@pytest.mark.parametrize(
    ("given", "is_said"),
    [
        ("", True),
        ("cpu=True", False),
        ("cpu=args.cpu", True),
        ("deepspeed_plugin=DeepSpeedPlugin()", False),
        ("deepspeed_plugin=DeepSpeedPlugin() if args.zero else None", True),
        ("mixed_precision='bf16'", True),
    ],
)
def test_accelerators_of_other_engines_shard_nothing(given: str, is_said: bool, tmp_path: Path) -> None:
    program = f"""\
from accelerate import Accelerator, DeepSpeedPlugin

def main(model, optimizer, args):
    accelerator = Accelerator({given})
    model, optimizer = accelerator.prepare(model, optimizer)
    return model.state_dict()
"""
    done, _ = rewrite_of(tmp_path, {"train.py": program, **_SETTINGS["flags"]})
    assert [r.finding.code for r in done.reported if r.finding.place.path == "train.py"] == [
        "FM402"
    ] * is_said


def test_a_trainers_own_class_asks_its_model(tmp_path: Path) -> None:
    program = """\
        import torch
        from transformers import Trainer

        class Saving(Trainer):
            def export(self, path):
                torch.save(self.model.state_dict(), path)
                self.model_wrapped.save_pretrained(path)

            def _save(self, output_dir=None, state_dict=None):
                if state_dict is None:
                    state_dict = self.model.state_dict()
                self.model.save_pretrained(output_dir, state_dict=state_dict)

        class Other(Base):
            def export(self, path):
                torch.save(self.model.state_dict(), path)
        """
    done, _ = rewrite_of(tmp_path, {"train.py": program, **_SETTINGS["flags"]})
    assert [r.finding.place.line for r in done.reported if r.finding.code == "FM623"] == [6, 7]


@pytest.mark.parametrize(
    ("text", "may_be"),
    [
        (b"from accelerate import Accelerator\nmodel = accelerator.prepare(model)", True),
        (b"model = thing.prepare(model)  # before accelerate", False),
        (b"from trl import SFTTrainer\nSFTTrainer(model).train()", True),
        (b"from trl import SFTTrainer\nmodel.train()\nSFTTrainer(model)", False),
        (b"SFTTrainer(model).train()  # of trl", False),
        # A pattern for all of it would read to the end from each of its beginnings.
        (b"accelerate transformers Trainer( " * 20_000, False),
    ],
)
def test_a_program_is_told_by_the_order_of_its_words(text: bytes, may_be: bool) -> None:
    assert may_be_launched(text) is may_be
