"""`--drop-fsdp1`: the FSDP1 branch goes where an FSDP2 branch stands beside it, never in silence."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest

from codemods.model import Options, Outcome, Rewrite
from codemods.plan import plan_rewrite

IMPORTS = """\
from torch.distributed.fsdp import FSDPModule, ShardingStrategy, fully_shard
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def shard_parts(model):
    for part in model.children():
        fully_shard(part)
    return fully_shard(model)


"""
ONE_OF_THREE = """\
def build(model, how):
    if how == "fsdp":
        strategy = ShardingStrategy.FULL_SHARD
        model = FSDP(model, sharding_strategy=strategy)
    elif how == "fsdp2":
        model = shard_parts(model)
    else:
        raise NotImplementedError(how)
    return model
"""


def rewrite(folder: Path, body: str, *, drop: bool = True) -> Rewrite:
    (folder / "a.py").write_text(IMPORTS + body)
    return plan_rewrite(folder, ["a.py"], Options(drop_fsdp1=drop))


def body_after(folder: Path, body: str) -> str:
    done = rewrite(folder, body)
    (change,) = done.changes
    ast.parse(change.after)
    text = change.after.decode()
    assert "FullyShardedDataParallel" not in text
    return text[text.index("def build") :]


CASES = {
    "first of three": (
        ONE_OF_THREE,
        """\
def build(model, how):
    if how == "fsdp2":
        model = shard_parts(model)
    else:
        raise NotImplementedError(how)
    return model
""",
    ),
    "second of three": (
        """\
def build(model, how):
    if how == "fsdp2":
        model = shard_parts(model)
    elif how == "fsdp":
        model = FSDP(model)
    else:
        raise NotImplementedError(how)
    return model
""",
        """\
def build(model, how):
    if how == "fsdp2":
        model = shard_parts(model)
    else:
        raise NotImplementedError(how)
    return model
""",
    ),
    "middle of four": (
        """\
def build(model, how):
    if how == "ddp":
        model = model.cuda()
    elif how == "fsdp":
        model = FSDP(model)
    elif how == "fsdp2":
        model = fully_shard(model)
    else:
        raise NotImplementedError(how)
    return model
""",
        """\
def build(model, how):
    if how == "ddp":
        model = model.cuda()
    elif how == "fsdp2":
        model = fully_shard(model)
    else:
        raise NotImplementedError(how)
    return model
""",
    ),
    "if and else": (
        """\
def build(model, new):
    if not new:
        model = FSDP(model)
    else:
        # stays as it is
        model = fully_shard(model)
        model.train()
    return model
""",
        """\
def build(model, new):
    model = fully_shard(model)
    model.train()
    return model
""",
    ),
    "else is FSDP1": (
        """\
def build(model, new):
    if new:
        model = fully_shard(model)
        model.train()
    else:
        model = FSDP(model)
    return model
""",
        """\
def build(model, new):
    model = fully_shard(model)
    model.train()
    return model
""",
    ),
    "nobody else would refuse": (
        """\
def build(model, how):
    if how == "fsdp":
        model = FSDP(model)
    elif how == "fsdp2":
        model = fully_shard(model)
    return model
""",
        """\
def build(model, how):
    if how == "fsdp":
        raise ValueError("FSDP1 is no longer supported: choose FSDP2")
    elif how == "fsdp2":
        model = fully_shard(model)
    return model
""",
    ),
    "isinstance": (
        """\
def build(model):
    if isinstance(model, FSDP):
        return 1
    elif isinstance(model, FSDPModule):
        return 2
    else:
        return 0
""",
        """\
def build(model):
    if isinstance(model, FSDPModule):
        return 2
    else:
        return 0
""",
    ),
    "isinstance last": (
        """\
def build(model):
    if isinstance(model, FSDPModule):
        model.reshard()
    elif isinstance(model, FSDP):
        model._handle.reshard(True)
    return model
""",
        """\
def build(model):
    if isinstance(model, FSDPModule):
        model.reshard()
    return model
""",
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("depth", [0, 1], ids=["", "nested"])
def test_fsdp1_branch_goes(name: str, depth: int, tmp_path: Path) -> None:
    before, expected = CASES[name]
    if depth:
        before, expected = (
            "class Trainer:\n" + textwrap.indent(text.replace("def build(", "def build(self, "), "    ")
            for text in (before, expected)
        )
        expected = expected.removeprefix("class Trainer:\n    ")
    assert body_after(tmp_path, before).rstrip() == expected.rstrip()


def test_imports_that_only_it_used_go(tmp_path: Path) -> None:
    (change,) = rewrite(tmp_path, ONE_OF_THREE).changes
    assert b"ShardingStrategy" not in change.after
    assert b"fsdp2_sharding" not in change.after


def test_dropped_wrap_is_no_wrap_left_over(tmp_path: Path) -> None:
    assert rewrite(tmp_path, ONE_OF_THREE).wrap_sites == ()


def test_other_branch_that_would_take_fsdp1_in_silence_is_left_to_a_person(tmp_path: Path) -> None:
    body = ONE_OF_THREE.replace("raise NotImplementedError(how)", "model = model.cuda()")
    done = rewrite(tmp_path, body)
    assert [r.finding.code for r in done.open_findings] == ["FM121"]


def test_default_leaves_both_branches_and_says_so(tmp_path: Path) -> None:
    done = rewrite(tmp_path, ONE_OF_THREE, drop=False)
    notes = [r for r in done.reported if r.finding.code == "FM120"]
    assert [(r.outcome, r.finding.place.line) for r in notes] == [(Outcome.NOTE, 12)]
    assert "--drop-fsdp1" in notes[0].finding.message
    text = next(change.after.decode() for change in done.changes if change.path == "a.py")
    assert 'if how == "fsdp":' in text and 'elif how == "fsdp2":' in text


def test_nothing_is_said_where_only_one_stack_stands(tmp_path: Path) -> None:
    body = ONE_OF_THREE.replace("shard_parts(model)", "model.cuda()")
    assert "FM120" not in [r.finding.code for r in rewrite(tmp_path, body, drop=False).reported]


def test_dropping_again_changes_nothing(tmp_path: Path) -> None:
    (change,) = rewrite(tmp_path, ONE_OF_THREE).changes
    (tmp_path / "a.py").write_bytes(change.after)
    assert plan_rewrite(tmp_path, ["a.py"], Options(drop_fsdp1=True)).changes == ()
