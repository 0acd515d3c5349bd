"""What tells FSDP1 models from FSDP2's goes on telling them apart, whatever its form."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from torch import nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel

from codemods.model import Options, Outcome
from codemods.plan import plan_rewrite

_IMPORTS = """\
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

"""
_FORMS = {
    "early returns": """\
        if isinstance(m, FSDP):
            return 1
        if isinstance(m, FSDPModule):
            return 2
        return 0
    """,
    "early returns of a long function": """\
        kind = 0
        for _ in range(2):
            kind += 0
        if isinstance(m, FSDP):
            kind = 1
            return kind
        kind += 0
        if isinstance(m, FSDPModule):
            return 2
        return kind
    """,
    "two branches": """\
        kind = 0
        if isinstance(m, FSDP):
            kind = 1
        if isinstance(m, FSDPModule):
            kind = 2
        return kind
    """,
    "the other one first": """\
        kind = 0
        if isinstance(m, FSDPModule):
            return 2
        if type(m) is FSDP:
            return 1
        return kind
    """,
    "answers kept": """\
        first = isinstance(m, FSDP)
        second = isinstance(m, FSDPModule)
        if first:
            return 1
        return 2 if second else 0
    """,
    "a loop": """\
        kind = 0
        for part in [m]:
            if isinstance(part, FSDP):
                kind = 1
                continue
            if isinstance(part, FSDPModule):
                kind = 2
        return kind
    """,
    "the rest is FSDP2's": """\
        if isinstance(m, FSDP):
            return 1
        return 2
    """,
    "otherwise FSDP2's": """\
        if isinstance(m, FSDP):
            return 1
        elif m is None:
            return 0
        else:
            return 2
    """,
    "one expression": """\
        return 1 if isinstance(m, FSDP) else 2
    """,
    "not FSDP1's": """\
        if not isinstance(m, FSDP):
            return 2
        return 1
    """,
    "by name": """\
        how = "fsdp" if type(m) == FSDP else "fsdp2"
        return {"fsdp": 1, "fsdp2": 2}[how]
    """,
    "functions of their own": """\
        if is_first(m):
            return 1
        return 2 if is_second(m) else 0


    def is_first(m):
        return isinstance(m, FSDP)


    def is_second(m):
        return isinstance(m, FSDPModule)
    """,
}


def _sharded() -> nn.Module:
    """A module of the class that `fully_shard` makes."""
    made = object.__new__(type("FSDPLinear", (FSDPModule, nn.Linear), {}))
    assert isinstance(made, FSDPModule) and isinstance(made, nn.Linear)
    return made


def _version(text: str, module: object) -> object:
    names: dict[str, object] = {}
    exec(text, names)
    function = names["fsdp_version"]
    assert callable(function)
    return function(module)


@pytest.mark.parametrize("form", _FORMS)
def test_a_sharded_model_is_of_version_2_as_before(tmp_path: Path, form: str) -> None:
    body = textwrap.dedent(_FORMS[form]).replace("\n", "\n    ").replace("\n    def", "\ndef")
    body = body.replace("):\n        return isinstance", "):\n    return isinstance")
    text = f"{_IMPORTS}\ndef shard(m):\n    return fully_shard(m)\n\n\ndef fsdp_version(m):\n    {body}"
    sharded, wrapper = _sharded(), object.__new__(FullyShardedDataParallel)
    assert (_version(text, sharded), _version(text, wrapper)) == (2, 1)
    (tmp_path / "a.py").write_text(text)
    plan = plan_rewrite(tmp_path, ["a.py"], Options())
    after = {change.path: change.after.decode() for change in plan.changes}.get("a.py", text)
    assert (_version(after, sharded), _version(after, wrapper)) == (2, 1)
    notes = [r.finding for r in plan.reported if r.outcome is Outcome.NOTE]
    assert {"FM501"} == {finding.code for finding in notes}


@pytest.mark.parametrize(
    "body",
    [
        "def depth(m):\n    return 1 if isinstance(m, FSDP) else 2\n",
        "def fsdp_version(m):\n    return 1 if isinstance(m, FSDP) else 0\n",
        "def fsdp_version(m):\n    if isinstance(m, FSDP):\n        return 1\n",
        "def f(m, n):\n    if isinstance(m, FSDP):\n        return 1\n    return isinstance(n, FSDPModule)\n",
        "def f(m):\n    n = isinstance(m, FSDP)\n    print(n, isinstance(m, (FSDP, FSDPModule)))\n",
        "def f(m):\n    return isinstance(m, FSDP)\n\n"
        "def g(m):\n    return isinstance(m, (FSDP, FSDPModule))\n",
    ],
)
def test_other_questions_are_asked_of_the_sharded_model(tmp_path: Path, body: str) -> None:
    (tmp_path / "a.py").write_text(f"{_IMPORTS}\ndef shard(m):\n    return fully_shard(m)\n\n\n{body}")
    [change] = plan_rewrite(tmp_path, ["a.py"], Options()).changes
    assert "isinstance(m, FSDPModule)" in change.after.decode()
    assert "FullyShardedDataParallel" not in change.after.decode()
