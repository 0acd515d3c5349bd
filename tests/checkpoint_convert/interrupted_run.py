"""A conversion that is slow in one phase, for tests that interrupt or kill it. Run as a program.

Arguments: destination, phase (`comparing tied`, `writing`, `checking`, `no space`), jobs. Prints `at PHASE`
once the phase is under way. No torch here: it starts in a moment.
"""

from __future__ import annotations

import contextlib
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from checkpoint_convert.convert import ConvertOptions, convert
from checkpoint_convert.model import Contents, DType, SourceFormat
from checkpoint_convert.readers.open import open_source
from fsdp_migrate.cli.app import guarded
from fsdp_migrate.exit_codes import ExitCode

BLOCKS, BLOCK = 40, bytes(1000)


class Slow:
    """A tensor whose bytes come slowly while its phase is the chosen one."""

    dtype = DType.FLOAT32
    shape = (BLOCKS * len(BLOCK) // 4,)

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def blocks(self, start: int, stop: int) -> Iterator[memoryview]:
        for _ in range(4 * start, 4 * stop, len(BLOCK)):
            if self._watch.slow:
                time.sleep(0.1)
            yield memoryview(BLOCK)


class Watch:
    """Says when the chosen phase is under way."""

    def __init__(self, phase: str) -> None:
        self._chosen = phase
        self.slow = False

    def phase(self, name: str, total_bytes: int) -> None:
        self.slow = name == self._chosen
        if self.slow:
            print("at", name, flush=True)

    def advance(self, size_bytes: int) -> None:
        pass


def main(target: str, phase: str, jobs: str) -> ExitCode:
    watch = Watch(phase)
    names = [f"t{number}" for number in range(4)]
    contents = Contents(SourceFormat.FULL, {name: Slow(watch) for name in names}, aliases={"t1": "t0"})
    if phase == "no space":
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    @contextlib.contextmanager
    def reopen(path: Path) -> Iterator[Contents]:
        with open_source([path]) as written:
            assert set(written.model) == set(names)
            yield Contents(SourceFormat.DCP, {name: Slow(watch) for name in names})

    convert(contents, Path(target), ConvertOptions(jobs=int(jobs)), reopen=reopen, progress=watch)
    return ExitCode.OK


if __name__ == "__main__":
    guarded(lambda: main(*sys.argv[1:]))()
