"""`--whole-only`: a group of places that share a model is rewritten whole, or left byte for byte."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import laws
import pytest
import tool
from case import all_cases
from small import rewrite_of

from codemods.model import Options, Outcome

WHOLE = Options(whole_only=True)
_IMPORT = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
LEFT = f"{_IMPORT}\n\ndef other(model):\n    model = FSDP(model)\n    return model._handle\n"
DONE = f"{_IMPORT}\n\ndef train(model):\n    model = FSDP(model)\n    return model.clip_grad_norm_(1.0)\n"


def test_a_group_with_one_open_place_is_left_untouched(tmp_path: Path) -> None:
    text = LEFT.replace("return model._handle", "model.clip_grad_norm_(1.0)\n    return model._handle")
    done, texts = rewrite_of(tmp_path, {"a.py": text}, WHOLE)
    assert texts == {}
    outcomes = {r.finding.code: (r.outcome, r.detail) for r in done.reported if not r.finding.is_note}
    why = "left with its model, as FM507 in a.py:7 needs a person"
    assert outcomes == {
        "FM101": (Outcome.TODO, why),
        "FM301": (Outcome.TODO, why),
        "FM507": (Outcome.TODO, ""),
    }
    _, by_default = rewrite_of(tmp_path, {"a.py": text})
    assert "fully_shard(model)" in by_default["a.py"] and "TODO(fsdp-migrate FM507)" in by_default["a.py"]


def test_another_model_of_the_same_file_is_done(tmp_path: Path) -> None:
    _, texts = rewrite_of(tmp_path, {"a.py": LEFT + DONE.removeprefix(_IMPORT)}, WHOLE)
    head, _, rest = texts["a.py"].partition("def other")
    other, _, train = rest.partition("def train")
    assert "    model = FSDP(model)\n    return model._handle\n" in other
    assert "fully_shard(model)" in train and "FSDP" not in train
    assert "FullyShardedDataParallel as FSDP" in head and "TODO" not in texts["a.py"]


def test_a_model_used_in_another_module_is_one_group(tmp_path: Path) -> None:
    files = {
        "wrap.py": f"{_IMPORT}\n\ndef wrap(model):\n    return FSDP(model)\n",
        "train.py": "from wrap import wrap\n\nmodel = wrap(make())\nprint(model._handle)\n",
        "alone.py": DONE,
    }
    _, texts = rewrite_of(tmp_path, files, WHOLE)
    assert list(texts) == ["alone.py"]


def test_what_depends_on_a_left_call_is_left_too(tmp_path: Path) -> None:
    files = {
        "config.py": """
            from torch.distributed.fsdp import ShardingStrategy

            STRATEGY = {"full": ShardingStrategy.FULL_SHARD, "none": ShardingStrategy.NO_SHARD}
        """,
        "train.py": """
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

            from config import STRATEGY


            def train(model, name):
                model = FSDP(model, sharding_strategy=STRATEGY[name])
                return model._handle
        """,
    }
    _, by_default = rewrite_of(tmp_path, files)
    assert {"config.py", "train.py", "fsdp2_sharding.py"} <= set(by_default)
    _, texts = rewrite_of(tmp_path, files, WHOLE)
    assert texts == {}


def test_a_launch_script_is_one_group(tmp_path: Path) -> None:
    text = """
        accelerate launch --use_fsdp --fsdp_sharding_strategy NO_SHARD train.py
        accelerate launch --use_fsdp --fsdp_sharding_strategy FULL_SHARD train.py
    """
    done, texts = rewrite_of(tmp_path, {"run.sh": text}, WHOLE)
    details = [r.detail for r in done.reported if not r.finding.is_note]
    assert details == ["", "left with the file, as FM602 in line 1 needs a person"]
    assert {r.outcome for r in done.reported if not r.finding.is_note} == {Outcome.TODO}
    assert texts == {}
    _, by_default = rewrite_of(tmp_path, {"run.sh": text})
    assert "--fsdp_version 2" in by_default["run.sh"]


SAMPLE = random.Random(3).sample(all_cases(), 60)


@pytest.mark.parametrize("part", range(4))
def test_laws_hold_on_the_cases(part: int, tmp_path: Path) -> None:
    for case in SAMPLE[part::4]:
        folder = tmp_path / case.id
        shutil.copytree(case.before, folder)
        options = [*case.options, "--whole-only"]
        first = tool.rewrite_in_place(folder, options)
        assert laws.parse_errors(folder) <= laws.parse_errors(case.before), case.id
        before, after = laws.contents(case.before), laws.contents(folder)
        if not first.open_codes:
            plain = tmp_path / f"{case.id}-plain"
            shutil.copytree(case.before, plain)
            tool.rewrite_in_place(plain, case.options)
            assert laws.contents(plain) == after, case.id
        assert all(
            b"TODO(fsdp-migrate" not in data or data == before.get(name) for name, data in after.items()
        ), case.id
        again = tool.rewrite_in_place(folder, options)
        assert laws.contents(folder) == after, case.id
        assert laws.silent_leftovers(folder, again.found_at) == [], case.id
