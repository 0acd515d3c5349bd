"""Whatever happens while a rewrite is written: each file is old or new, and the printed command goes back."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import re
import resource
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_way_back import NAMES, ROOT, TRAIN, plan, program, tree

from codemods import atomic
from codemods.errors import CodemodError
from codemods.record import FOLDER
from codemods.undo import restore
from codemods.write import write_rewrite

_KILLED = """
import os, random, signal, sys, time
from pathlib import Path
from codemods.model import Options
from codemods.plan import plan_rewrite
from codemods.sources import find_files
from codemods.undo import restore
from codemods.write import write_rewrite

folder, seed = Path(sys.argv[1]), int(sys.argv[2])
chance = random.Random(seed)
rewrite = plan_rewrite(folder, find_files(folder, [folder]), Options())
old = {change.path: change.before for change in rewrite.changes}
new = {change.path: change.after for change in rewrite.changes}

def now():
    return {p: (folder / p).read_bytes() if (folder / p).exists() else None for p in old}

def child(work):
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(0)
    return pid

def write():
    write_rewrite(folder, rewrite, tool="0", target_torch="2.6")

started = time.monotonic()
os.waitpid(child(write), 0)
whole_s = time.monotonic() - started
assert now() == new
restore(folder)
states = {"untouched": 0, "between": 0, "complete": 0}
for _ in range(50):
    pid = child(write)
    time.sleep(chance.random() * whole_s * 1.1)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    found = now()
    assert all(found[p] in (old[p], new[p]) for p in old), found
    # The lock of a killed process is nobody's, and goes with the next writer.
    left = {p.name for p in folder.iterdir() if p.name.startswith(".")}
    assert left <= {".fsdp-migrate", ".fsdp-migrate.lock"}, left
    states["untouched" if found == old else "complete" if found == new else "between"] += 1
    if (folder / ".fsdp-migrate/manifest.json").exists():
        # Undo is killed now and then as well; it can be run again.
        pid = child(lambda: restore(folder))
        if chance.random() < 0.3:
            time.sleep(chance.random() * 0.02)
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        found = now()
        assert all(found[p] in (old[p], new[p]) for p in old), found
        if (folder / ".fsdp-migrate/manifest.json").exists():
            restore(folder)
    assert now() == old
print(states)
"""


def many(folder: Path) -> Path:
    """A project of sixteen files and a helper module."""
    for number in range(16):
        path = folder / f"package{number % 3}" / f"m{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(TRAIN)
    return folder


def test_killed_fifty_times_at_random_moments(tmp_path: Path) -> None:
    folder = many(tmp_path / "project")
    before = tree(folder)
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, str(folder), "7"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(re.findall(r"'between': (\d+)", done.stdout)[0]) > 0
    left = {name: found for name, found in tree(folder).items() if not name.startswith(FOLDER)}
    assert left == before


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "pro ject"
    for name in NAMES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(TRAIN)
    return folder


def write(folder: Path) -> None:
    write_rewrite(folder, plan(folder), tool="0", target_torch="2.6")


def restored_by_the_printed_command(folder: Path, said: str) -> None:
    command = re.findall(r"`fsdp-migrate (rewrite --undo [^`]+)`", said)
    assert command, said
    done = program(*shlex.split(command[0]))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_disk_that_fills_up_at_any_step(number: int, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tree(project)
    real = atomic.os.fsync
    steps = 0

    def fsync(handle: int) -> None:
        nonlocal steps
        steps += 1
        if steps == last:
            raise OSError(number, os.strerror(number))
        real(handle)

    monkeypatch.setattr(atomic.os, "fsync", fsync)
    told: list[str] = []
    for last in range(1, 30):
        steps = 0
        try:
            write(project)
        except CodemodError as error:
            told.append(error.hint)
            assert os.strerror(number) in error.message
        monkeypatch.setattr(atomic.os, "fsync", real)
        if steps < last:
            restore(project)
            break
        if told[-1].startswith("No file was changed."):
            assert tree(project) == before
        else:
            restored_by_the_printed_command(project, told[-1])
        assert tree(project) == before
        monkeypatch.setattr(atomic.os, "fsync", fsync)
    assert {hint.split()[0] for hint in told} == {"No", "Files"}
    assert len(told) >= 2 * len(NAMES)


def test_file_that_outgrows_the_limit_of_the_process(project: Path) -> None:
    (project / "big.py").write_text(TRAIN + "# a comment\n" * 5_000)
    before = tree(project)
    done = subprocess.run(
        [sys.executable, "-m", "fsdp_migrate", "rewrite", str(project)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000)),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "cannot be written: File too large" in done.stderr and "Traceback" not in done.stderr
    assert "No file was changed." in done.stderr
    assert tree(project) == before


@pytest.mark.parametrize("at", [1, 2, 3])
def test_edit_while_files_are_written_is_kept_and_the_rest_taken_back(at: int, project: Path) -> None:
    before = tree(project)
    rewrite = plan(project)
    seen: list[str] = []

    def edit(path: str) -> None:
        seen.append(path)
        if len(seen) == at:
            (project / "package/c.py").write_text(TRAIN + "# saved meanwhile\n")

    with pytest.raises(CodemodError) as error:
        write_rewrite(project, rewrite, tool="0", target_torch="2.6", on_file=edit)
    assert "changed while it was being rewritten; nothing was written" in error.value.message
    now = tree(project)
    assert now.pop("package/c.py")[0] == (TRAIN + "# saved meanwhile\n").encode()
    before.pop("package/c.py")
    assert now == before


def test_owner_and_mode_of_a_file_stay(project: Path) -> None:
    if os.geteuid() == 0:
        os.chown(project / "a.py", 12345, 23456)
    (project / "a.py").chmod(0o640)
    before = (project / "a.py").stat()
    write(project)
    after = (project / "a.py").stat()
    assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)
    assert after.st_size != before.st_size


def used_by(pid: int) -> float:
    """Processor seconds of a process and of what it has started, so far: a busy machine does not count."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            mine = int(path.parent.name)
            parents[mine], ticks[mine] = int(fields[1]), sum(map(int, fields[11:15]))
    family = {pid}
    while grown := {child for child, parent in parents.items() if parent in family} - family:
        family |= grown
    return sum(ticks.get(each, 0) for each in family) / os.sysconf("SC_CLK_TCK")


def used_by_ended_children() -> float:
    """Processor seconds of all processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_interrupt_from_the_keyboard_is_prompt_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    folder = many(tmp_path / "project")
    for number in range(60):
        lines = "".join(f"x{i} = [{i}, {i}, ({i}, 'a')]\n" for i in range(2_000))
        (folder / f"wide{number}.py").write_text(TRAIN + lines)
    before = tree(folder)
    chance = random.Random(11)
    for delay_s in (0.3, 0.6, 1.2, 1.0 + 2 * chance.random()):
        others = used_by_ended_children()
        process = subprocess.Popen(
            [sys.executable, "-m", "fsdp_migrate", "rewrite", str(folder)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        time.sleep(delay_s)
        until_then = used_by(process.pid)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=240)
        assert used_by_ended_children() - others - until_then < 3
        # Before the first line of ours runs, the interpreter dies of the signal, as shells expect.
        assert process.returncode in (130, -signal.SIGINT), said
        assert process.returncode != 130 or "interrupted" in said
        if "--undo" in said:
            restored_by_the_printed_command(folder, said)
        assert tree(folder) == before


def test_folder_that_cannot_be_listed_is_reported(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Root may list everything, so the refusal has to be made up.
    (project / "secret").mkdir()
    real = Path.iterdir

    def iterdir(self: Path) -> Iterator[Path]:
        if self.name == "secret":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))
        return real(self)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    done = plan(project)
    assert done.skipped == {"secret/": "cannot be read: Permission denied"}
    (left,) = (r.finding for r in done.open_findings if r.finding.code == "FM901")
    assert left.place.path == "secret/"
    assert "a.py" in {change.path for change in done.changes}


def test_full_disk_behind_the_report_is_said(project: Path) -> None:
    if not Path("/dev/full").exists():
        return
    for options in (["--check"], ["--check", "--format", "json"], ["--diff"]):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "fsdp_migrate", "rewrite", *options, str(project)],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                timeout=120,
                check=False,
            )
        assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
        assert "No space left on device" in done.stderr
    told = program("rewrite", "--check", "--output", "/dev/full", str(project))
    assert told.returncode == 2 and "cannot be written: No space left on device" in told.stderr


def test_complete_rewrite_says_so(project: Path) -> None:
    write(project)
    folder = project / FOLDER
    assert json.loads((folder / "manifest.json").read_text())["complete"] is True
    assert sorted(path.name for path in folder.iterdir()) == [".gitignore", "manifest.json", "original"]
