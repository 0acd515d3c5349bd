"""The bar of a conversion on stderr: bytes, rate, time left. Only on a terminal; silent under `-q`."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from checkpoint_convert.progress import Progress, Silent
from fsdp_migrate import console

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID


class _Bar:
    """Adds up bytes from any thread; the screen is refreshed by rich's own thread."""

    def __init__(self, screen: RichProgress) -> None:
        self._screen = screen
        self._lock = threading.Lock()
        self._task: TaskID | None = None
        self._pending = 0
        self._step = 0

    def phase(self, name: str, total_bytes: int) -> None:
        """Begin a bar of its own for each phase."""
        with self._lock:
            self._flush()
            self._step = max(total_bytes // 500, 1)
            self._task = self._screen.add_task(name, total=total_bytes)

    def advance(self, size_bytes: int) -> None:
        """Count; the screen hears of it a few hundred times per phase at most."""
        with self._lock:
            self._pending += size_bytes
            if self._pending >= self._step:
                self._flush()

    def _flush(self) -> None:
        if self._task is not None and self._pending:
            self._screen.advance(self._task, self._pending)
        self._pending = 0

    def finish(self) -> None:
        """Show the last bytes."""
        with self._lock:
            self._flush()


@contextlib.contextmanager
def transfer_bar() -> Iterator[Progress]:
    """Something that watches a conversion: a bar on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty() or console.verbosity() < 0:
        yield Silent()
        return
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with RichProgress(*columns, console=console.progress(), transient=True) as screen:
        bar = _Bar(screen)
        yield bar
        bar.finish()
