"""Work shared out among processes: the results of one, errors that say where, and nothing left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from small import children

from codemods.errors import CodemodError
from codemods.processes import WorkerDied, mapped, processors

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Every copy has ended, and was waited for; every pipe is closed."""
    before = set(Path("/proc/self/fd").iterdir()) if Path("/proc/self/fd").exists() else set()
    others = children()  # of tests that ran before
    yield
    assert children() == others
    after = set(Path("/proc/self/fd").iterdir()) if before else set()
    assert len(after) <= len(before)


@pytest.fixture
def meet(tmp_path: Path) -> Callable[[int], bool]:
    """Waits until so many processes have begun (on a busy machine a copy starts late), and says whether this
    one is a copy."""
    here = os.getpid()

    def meet(number: int) -> bool:
        (tmp_path / f"begun_{os.getpid()}").touch()
        _until(lambda: len(list(tmp_path.glob("begun_*"))) >= number)
        return os.getpid() != here

    return meet


@pytest.mark.parametrize("count", [0, 1, 2, 40, 1000])
def test_results_come_in_the_order_of_the_items(count: int) -> None:
    items = [-n for n in range(count)]
    assert mapped(lambda n: n * n, items, 3) == [n * n for n in items]


def test_every_process_takes_a_part(meet: Callable[[int], bool]) -> None:
    found = mapped(lambda n: (n * n, meet(3), os.getpid()), list(range(60)), 3)
    assert [square for square, _, _ in found] == [n * n for n in range(60)]
    assert len({pid for _, _, pid in found}) == 3
    assert {pid for _, is_copy, pid in found if not is_copy} == {os.getpid()}


def test_what_this_process_has_read_need_not_be_sent() -> None:
    lock = threading.Lock()  # a thing that has no pickle
    assert mapped(lambda n: n + lock.locked(), [1, 2, 3], 2) == [1, 2, 3]


def test_large_results_do_not_fill_the_pipe() -> None:
    found = mapped(lambda n: (time.sleep(0.01), b"x" * 3_000_000)[1], list(range(8)), 2)
    assert [len(data) for data in found] == [3_000_000] * 8


@pytest.mark.parametrize("jobs", [0, 1, 2])
def test_one_process_does_it_all_where_there_is_no_fork(jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "fork")
    assert {pid for _, pid in mapped(lambda n: (n, os.getpid()), [1, 2, 3], jobs)} == {os.getpid()}


def test_those_that_run_do_it_all_where_no_more_processes_are_allowed(
    monkeypatch: pytest.MonkeyPatch, meet: Callable[[int], bool]
) -> None:
    real, forks = os.fork, []

    def fork() -> int:
        forks.append(1)
        if len(forks) > 1:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return real()

    monkeypatch.setattr(os, "fork", fork)
    found = mapped(lambda n: (n, meet(2)), list(range(30)), 4)
    assert [n for n, _ in found] == list(range(30))
    assert {is_copy for _, is_copy in found} == {True, False} and len(forks) == 3


@pytest.mark.parametrize("in_copy", [True, False], ids=["in a copy", "in this process"])
def test_an_error_is_raised_as_it_was(in_copy: bool, meet: Callable[[int], bool]) -> None:
    def work(number: int) -> int:
        time.sleep(0.03)
        if meet(2) is in_copy:
            raise CodemodError(f"item {number}", hint="Look there.")
        return number

    started = time.monotonic()
    with pytest.raises(CodemodError, match=r"item \d") as caught:
        mapped(work, list(range(2000)), 2)
    assert caught.value.hint == "Look there."
    assert time.monotonic() - started < 50, "nobody begins another portion"
    if in_copy:
        assert "in another process" in str(caught.value.__cause__)
        assert "in work" in str(caught.value.__cause__)


class _Odd(Exception):
    """An error that cannot be made again from its pickle."""

    def __init__(self, one: str, other: str) -> None:
        super().__init__(one + other)


def test_an_error_that_cannot_be_sent_is_told(meet: Callable[[int], bool]) -> None:
    def work(number: int) -> int:
        if meet(2):
            raise _Odd("this ", "and that")
        return number

    with pytest.raises(RuntimeError, match="_Odd: this and that"):
        mapped(work, [1, 2, 3, 4], 2)


def test_a_result_that_cannot_be_sent_is_told(meet: Callable[[int], bool]) -> None:
    with pytest.raises(RuntimeError, match="pickle"):
        mapped(lambda _: threading.Lock() if meet(2) else None, [1, 2, 3, 4], 2)


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "killed by signal 9"),
        (lambda: os._exit(7), "ended with status 7"),
        (lambda: sys.exit("gone"), "ended with status 1"),
    ],
    ids=["killed", "ended", "left"],
)
def test_a_copy_that_dies_is_told(end: object, said: str, meet: Callable[[int], bool]) -> None:
    def work(number: int) -> int:
        if meet(2):
            end()  # type: ignore[operator]
        return number

    with pytest.raises(WorkerDied, match=said) as caught:
        mapped(work, list(range(6)), 3)
    assert "--jobs 1" in caught.value.hint


def test_an_interrupted_process_ends_its_copies(meet: Callable[[int], bool]) -> None:
    def work(number: int) -> int:
        if meet(3):
            time.sleep(60)
        raise KeyboardInterrupt

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        mapped(work, list(range(6)), 3)
    assert time.monotonic() - started < 30


_SLOW = """
import os, sys, time
from codemods.processes import mapped

def work(number):
    with open(sys.argv[1], "a") as stream:
        stream.write(f"{os.getpid()}\\n")
    time.sleep(60)

mapped(work, list(range(6)), 3)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_copies_end_with_the_process_they_are_copies_of(number: signal.Signals, tmp_path: Path) -> None:
    told = tmp_path / "pids"
    process = subprocess.Popen(
        [sys.executable, "-c", _SLOW, str(told)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.DEVNULL,
    )
    _until(lambda: told.exists() and len(told.read_text().split()) == 3)
    pids = [int(pid) for pid in told.read_text().split()]
    assert all(map(_runs, pids)) and len(set(pids)) == 3
    process.send_signal(number)
    process.wait(30)
    _until(lambda: not any(map(_runs, pids)))
    assert process.returncode != 0


def _until(holds: object, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.02)


def _runs(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        with suppress(OSError):
            return stat.read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
        return False
    told = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout
    return bool(told.strip()) and not told.startswith("Z")


def test_processors_are_those_this_process_may_use() -> None:
    assert 1 <= processors() <= (os.cpu_count() or 1)
