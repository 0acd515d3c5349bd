"""Imports that share their line with other statements, and a copy of torch within the target."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from codemods.editing.shared_lines import apart
from codemods.model import Options
from codemods.plan import plan_rewrite
from codemods.sources import find_files

FSDP = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP"
REST = "\n\n\ndef build(model):\n    return FSDP(model)\n"


def rewritten(folder: Path, text: str) -> str:
    (folder / "a.py").write_text(text)
    done = plan_rewrite(folder, ["a.py"], Options())
    (change,) = done.changes
    ast.parse(change.after)
    return change.after.decode()


@pytest.mark.parametrize(
    "line",
    [
        f"import os; {FSDP}",
        f"{FSDP}; import os",
        f"import os; {FSDP}; import sys",
        f"{FSDP};",
        f"{FSDP}; ",
        f"{FSDP};  # a comment",
        f"import os; {FSDP}; NAME = 'a;b'",
    ],
)
def test_import_that_shares_its_line_goes_alone(line: str, tmp_path: Path) -> None:
    after = rewritten(tmp_path, line + REST)
    assert "FullyShardedDataParallel" not in after
    others = [part.strip() for part in line.replace(FSDP, "").split("; ") if part.strip(" ;")]
    assert [part for part in others if part.split("#")[0].strip() not in after] == []
    assert "fully_shard(model)" in after


def test_import_behind_a_colon_stays_there(tmp_path: Path) -> None:
    after = rewritten(tmp_path, f"if True: import os; {FSDP}" + REST)
    assert "if True: import os" in after


def test_deletions_that_meet_are_done_once() -> None:
    assert apart("abcdefghi", [(5, 9, ""), (0, 6, "")]) == [(0, 5, ""), (5, 9, "")]
    assert apart("abcdefghi", [(0, 6, "x"), (5, 9, "")]) == [(0, 6, "x"), (6, 9, "")]
    assert apart("abcdefghi", [(0, 9, ""), (4, 4, "new")]) == [(0, 4, ""), (4, 4, "new"), (4, 9, "")]
    assert apart("abcdefghi", [(3, 4, "y"), (0, 2, "")]) == [(0, 2, ""), (3, 4, "y")]


def test_blank_line_stays_below_what_comes_in_its_place() -> None:
    assert apart("ab\n\n", [(0, 4, ""), (3, 3, "\nnew\n")]) == [(0, 3, ""), (3, 3, "new\n")]


def test_torch_means_torch_also_beside_a_copy_of_its_files(tmp_path: Path) -> None:
    copy = tmp_path / "third_party" / "torch" / "distributed" / "fsdp" / "__init__.py"
    copy.parent.mkdir(parents=True)
    copy.write_text("class FullyShardedDataParallel:\n    pass\n")
    (tmp_path / "a.py").write_text(FSDP + REST)
    done = plan_rewrite(tmp_path, find_files(tmp_path, [tmp_path]), Options())
    assert [(site.path, site.form) for site in done.wrap_sites] == [("a.py", "inline")]


def test_units_that_keywords_decide_are_not_called_none(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
        "def shard(model, settings):\n    return FSDP(model, **settings.__dict__)\n"
    )
    (site,) = plan_rewrite(tmp_path, ["train.py"], Options()).wrap_sites
    assert (site.form, site.units) == ("helper", "by what `**` holds when the program runs")
