"""The two streams: results go to stdout, progress and logs to stderr. Imports rich only when first used."""

from __future__ import annotations

import io
import logging
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(slots=True)
class _Screen:
    no_color: bool = False
    verbosity: int = 0


_screen = _Screen()


def configure(*, no_color: bool, verbosity: int) -> None:
    """Set colour and verbosity for the whole process.

    Args:
        no_color: never write colour; the variable `NO_COLOR` says the same.
        verbosity: -1 errors only, 0 normal, 1 and more: debug logs.
    """
    _screen.no_color = no_color or "NO_COLOR" in os.environ
    _screen.verbosity = verbosity
    level = logging.DEBUG if verbosity > 0 else logging.ERROR if verbosity < 0 else logging.WARNING
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # What a terminal has no sign for, and file names that are no text, are shown as escapes.
            stream.reconfigure(errors="backslashreplace")
    logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)


def verbosity() -> int:
    """-1 quiet, 0 normal, 1 and more verbose."""
    return _screen.verbosity


def results() -> Console:
    """The console for results (stdout)."""
    from rich.console import Console

    return Console(no_color=_screen.no_color, highlight=False, emoji=False, soft_wrap=not sys.stdout.isatty())


def progress() -> Console:
    """The console for progress and messages (stderr); silent under `-q`."""
    from rich.console import Console

    return Console(
        emoji=False,
        stderr=True,
        no_color=_screen.no_color,
        highlight=False,
        quiet=_screen.verbosity < 0,
        soft_wrap=not sys.stderr.isatty(),
    )
