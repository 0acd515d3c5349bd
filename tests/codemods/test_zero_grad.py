"""FM304: which backward pass before a `zero_grad()` of a skipped batch synchronises, and which may not."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest
from small import rewrite_of

_PROGRAM = """\
from contextlib import nullcontext

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def train(net, optimizer, data, profile):
    model = FSDP(net)
    for step, batch in enumerate(data):
        with model.no_sync() if step % 2 else nullcontext():
            loss = model(batch)
            loss.backward()
"""
_BACKWARD = "(loss * 0).backward()\n"
_SKIP = "if torch.isnan(loss):\n    optimizer.zero_grad()\n"


@pytest.mark.parametrize(
    ("ending", "told"),
    [
        (_BACKWARD + _SKIP, False),
        (f'with torch.autocast("cpu"):\n{indent(_BACKWARD + _SKIP, "    ")}', False),
        (_SKIP, True),
        (f"if step % 4:\n    {_BACKWARD}{_SKIP}", True),
        (f"with profile():\n{indent(_BACKWARD + _SKIP, '    ')}", True),
        (f"with model.no_sync():\n    {_BACKWARD}{_SKIP}", True),
    ],
    ids=["plain", "autocast", "none", "at times", "in a context", "without synchronising"],
)
def test_only_a_backward_pass_that_surely_synchronises_is_one(
    tmp_path: Path, ending: str, told: bool
) -> None:
    done, _ = rewrite_of(tmp_path, {"train.py": _PROGRAM + indent(ending, " " * 8)})
    assert ("FM304" in [item.finding.code for item in done.reported]) is told


_CHOSEN = """\
from contextlib import nullcontext

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def train(net, optimizer, data):
    model = FSDP(net)
    for step, batch in enumerate(data):
        last = step % 4 == 3
        with nullcontext() if last else model.no_sync():
            loss = model(batch)
BEFORE
            loss.backward()
            if TEST:
                optimizer.step()
                optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("before", "test", "told"),
    [
        ("", "last", False),
        ("", "last and step > 8", False),
        ("", "not last", True),
        ("", "last or step > 8", True),
        ("            last = True", "last", True),
    ],
    ids=["the same", "narrower", "the others", "wider", "bound anew"],
)
def test_the_branch_of_the_micro_batch_that_synchronises(
    tmp_path: Path, before: str, test: str, told: bool
) -> None:
    program = _CHOSEN.replace("BEFORE", before).replace("TEST", test)
    done, _ = rewrite_of(tmp_path, {"train.py": program})
    assert ("FM304" in [item.finding.code for item in done.reported]) is told
