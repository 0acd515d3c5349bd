"""The report on a terminal: any width, any encoding, with and without colour; nothing in a file steers it."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from reporting import ROOT, program, write
from rich.console import Console

from codemods.model import Options
from codemods.plan import plan_rewrite
from codemods.sources import find_files
from fsdp_migrate.reports.formats import ReportFormat
from fsdp_migrate.reports.rewrite import RewriteReport, build_report, render
from fsdp_migrate.reports.rewrite_text import show

HEAD = "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n\n\n"
BODY = """\
def train(model, größe):
    model = FSDP(model, use_orig_params=True)
    print(model._handle, "\x1b[31m red \x1b]0;owned\x07", "\u202e")  # größer 日本語
    print(model._handles, "%s")
    return model
""" % ("x" * 600)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> RewriteReport:
    folder = write(tmp_path_factory.mktemp("text"), {f"{'deep/' * 6}train.py": HEAD + BODY})
    done = plan_rewrite(folder, find_files(folder, [folder]), Options())
    return build_report(done, folder, written=True)


def shown(report: RewriteReport, width: int, **options: bool) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=True, highlight=False, **options)
    show(report, console, verbose=True)
    return stream.getvalue()


@pytest.mark.parametrize("width", [80, 100, 200])
def test_prose_fits_the_terminal_and_stays_set_in(report: RewriteReport, width: int) -> None:
    text = re.sub(r"\x1b\[[\d;]*m", "", shown(report, width))
    prose = [line for line in text.splitlines() if not re.match(r" {6} *\d+ \| ", line)]
    # Only a path that is wider than the terminal may stick out: broken, nothing could jump to it.
    assert [line for line in prose if len(line) > min(width, 120) and " " in line.strip()] == []
    assert [line for line in prose if line != line.rstrip()] == []
    entry = text[text.index("FM507 [left to you]") :].splitlines()
    assert all(line.startswith(("      ", "  deep/")) for line in entry[1 : entry.index("")])
    assert "      why: " in text or "      what to do: " in text


def test_without_colour_there_is_none(report: RewriteReport) -> None:
    assert not re.search(r"\x1b\[[\d;]*3\dm", shown(report, 100, no_color=True))
    assert re.search(r"\x1b\[[\d;]*31m", shown(report, 100))


def test_nothing_in_a_file_steers_the_terminal(report: RewriteReport) -> None:
    for text in (shown(report, 100), render(report, ReportFormat.TEXT), render(report, ReportFormat.MD)):
        left = re.sub(r"\x1b\[[\d;]*m", "", text)
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", left)
        assert "<U+001B>[31m red <U+001B>]0;owned<U+0007>" in left
        assert "日本語" in left and "x" * 500 not in left


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_terminal_of_another_encoding(encoding: str, tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.py")
    write(tmp_path, {"train.py": HEAD + BODY})
    (tmp_path / name).write_text(HEAD + BODY)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    for options in ([], ["--diff"]):
        done = subprocess.run(
            [sys.executable, "-m", "fsdp_migrate", "rewrite", "--check", *options, "."],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 1, done.stderr.decode(errors="replace")
        text = (done.stderr if options else done.stdout).decode(encoding)
        assert "caf<0xE9>.py" in text
        said = "größer" if encoding != "ascii" else "gr\\xf6\\xdfer"
        assert said in text
        assert ("日本語" if encoding == "utf-8" else "\\u65e5\\u672c\\u8a9e") in text


def test_piped_output_has_a_finding_a_line_and_no_escapes(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": HEAD + BODY})
    told = program("rewrite", "--check", ".", cwd=tmp_path)
    assert "\x1b" not in told.out
    (line,) = (line for line in told.out.splitlines() if "train.py:6:11: FM507" in line)
    assert line.endswith("does not exist")
    assert "what to do: FSDP2 has no handles: `module.reshard()` reshards, `parameter.to_local()`" in told.out
