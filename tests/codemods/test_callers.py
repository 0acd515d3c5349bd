"""Calls by a definition's name, under whatever name and from whatever file."""

from __future__ import annotations

from pathlib import Path

import pytest
from small import rewrite_of

_BASE = """\
import torch

class Base:
    def keep(self, model):
        torch.save(model.state_dict(), "model.pt")
"""
_MAIN = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
{imported}

def run(net, saver):
    model = FSDP(net)
    {call}
"""


@pytest.mark.parametrize(
    ("imported", "call", "is_found"),
    [
        ("from base import Base", "Base.keep(saver, model)", True),
        ("from base import Base as Other", "Other.keep(saver, model)", True),
        ("import base", "base.Base.keep(saver, model=model)", True),
        ("from base import Base", "Base.keep(saver, net.head)", False),
    ],
)
def test_a_method_is_called_by_its_class(tmp_path: Path, imported: str, call: str, is_found: bool) -> None:
    files = {"base.py": _BASE, "main.py": _MAIN.format(imported=imported, call=call)}
    done, _ = rewrite_of(tmp_path, files)
    found = {
        (r.finding.place.path, r.finding.place.line)
        for r in done.reported
        if "state_dict" in r.finding.message
    }
    assert (("base.py", 5) in found) is is_found


_WALK = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
{imported}

def run(model):
    if isinstance(model, FSDP):
        for name, part in model.named_modules():
            {call}
"""
_LOOK = """\
class Block: ...

def look(part):
    return type(part) is Block

class Looker:
    def __init__(self, part):
        self.is_block = type(part) is Block
"""


@pytest.mark.parametrize(
    ("imported", "call", "line"),
    [
        ("from look import look", "look(part)", 4),
        ("from look import look as seen", "seen(part=part)", 4),
        ("from look import Looker", "Looker(part)", 8),
        ("from look import Looker as Seer", "Seer(part)", 8),
        ("from look import look", "look(name)", None),
    ],
)
def test_a_part_is_asked_for_its_class_where_it_is_given(
    tmp_path: Path, imported: str, call: str, line: int | None
) -> None:
    files = {"look.py": _LOOK, "main.py": _WALK.format(imported=imported, call=call)}
    done, _ = rewrite_of(tmp_path, files)
    found = [r.finding.place.line for r in done.reported if r.finding.code == "FM508"]
    assert found == ([] if line is None else [line])
