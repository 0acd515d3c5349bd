"""One writer of a directory at a time: told by process, free when that process is gone, nothing left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from small import write
from test_record import FILES, contents, rewritten

from codemods.errors import CodemodError
from codemods.lock import LOCK, only_writer, require_no_writer
from codemods.model import Options
from codemods.plan import plan_rewrite
from codemods.record import require_complete
from codemods.sources import find_files
from codemods.undo import restore
from codemods.write import write_rewrite

_ROOT = Path(__file__).parents[2]
_HOLDER = """
import sys
from pathlib import Path
from codemods.lock import only_writer

with only_writer(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""

_WITHOUT_SPACE = """
import resource, signal, sys
from pathlib import Path
from codemods.errors import CodemodError
from codemods.model import Options
from codemods.plan import plan_rewrite
from codemods.sources import find_files
from codemods.write import write_rewrite

target = Path(sys.argv[1])
done = plan_rewrite(target, find_files(target, [target]), Options())
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
try:
    write_rewrite(target, done, tool="0.1.0", target_torch="2.6")
except CodemodError as error:
    sys.exit(error.message)
"""


def _holder(target: Path) -> subprocess.Popen[str]:
    """Another process that holds the lock."""
    other = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(target)],
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout is not None and other.stdout.readline() == "held\n"
    return other


def test_another_writer_is_told_by_its_process_and_nothing_is_changed(tmp_path: Path) -> None:
    write(tmp_path, FILES)
    done = plan_rewrite(tmp_path, find_files(tmp_path, [tmp_path]), Options())
    other = _holder(tmp_path)
    before = contents(tmp_path)
    try:
        with pytest.raises(CodemodError) as caught:
            write_rewrite(tmp_path, done, tool="0.1.0", target_torch="2.6")
        assert caught.value.message == f"another fsdp-migrate (process {other.pid}) is writing to {tmp_path}"
        assert caught.value.hint == "Wait until it has ended, then run again."
        with pytest.raises(CodemodError, match=f"process {other.pid}"):
            restore(tmp_path)
        assert contents(tmp_path) == before
    finally:
        other.communicate("\n")
    assert sorted(contents(tmp_path)) == sorted(FILES)
    write_rewrite(tmp_path, done, tool="0.1.0", target_torch="2.6")
    assert not (tmp_path / LOCK).exists()


def test_a_full_disk_is_told_of_and_nothing_is_changed(tmp_path: Path) -> None:
    write(tmp_path, FILES)
    before = contents(tmp_path)
    run = subprocess.run(
        [sys.executable, "-c", _WITHOUT_SPACE, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stderr.endswith("cannot be written: File too large\n"), run.stderr
    assert "Traceback" not in run.stderr
    assert contents(tmp_path) == before


def test_what_a_killed_writer_leaves_holds_nobody_up(tmp_path: Path) -> None:
    write(tmp_path, FILES)
    before = contents(tmp_path)
    other = _holder(tmp_path)
    other.send_signal(signal.SIGKILL)
    other.communicate()
    assert (tmp_path / LOCK).read_text() == f"{other.pid}\n"
    require_no_writer(tmp_path)
    assert (tmp_path / LOCK).exists()  # to look is not to take
    rewritten(tmp_path)
    assert not (tmp_path / LOCK).exists()
    restore(tmp_path)
    assert contents(tmp_path) == before


def test_a_rewrite_under_way_is_not_called_an_interrupted_one(tmp_path: Path) -> None:
    write(tmp_path, FILES)
    done = plan_rewrite(tmp_path, find_files(tmp_path, [tmp_path]), Options())
    said: list[str] = []

    def meanwhile(_: str) -> None:
        with pytest.raises(CodemodError) as caught:
            require_complete(tmp_path)
        said.append(caught.value.message)

    write_rewrite(tmp_path, done, tool="0.1.0", target_torch="2.6", on_file=meanwhile)
    assert said == [f"another fsdp-migrate (process {os.getpid()}) is writing to {tmp_path}"] * 3
    require_complete(tmp_path)


def test_an_interrupted_rewrite_is_still_called_that(tmp_path: Path) -> None:
    write(tmp_path, FILES)
    done = plan_rewrite(tmp_path, find_files(tmp_path, [tmp_path]), Options())

    def interrupt(path: str) -> None:
        if path == "wrap.py":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_rewrite(tmp_path, done, tool="0.1.0", target_torch="2.6", on_file=interrupt)
    assert not (tmp_path / LOCK).exists()
    with pytest.raises(CodemodError, match="was interrupted"):
        write_rewrite(tmp_path, done, tool="0.1.0", target_torch="2.6")
    restore(tmp_path)


def test_where_no_file_can_be_made_nothing_is_locked(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with only_writer(missing):
        assert not missing.exists()
    require_no_writer(missing)
