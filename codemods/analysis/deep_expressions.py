"""Room for deeply nested expressions: Python parses what its usual limit does not let one walk through."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_DEEPEST = 10_000
"""Calls within one another; each takes some hundred bytes of a stack of 8 MiB."""


@contextmanager
def deep_expressions() -> Iterator[None]:
    """Let calls go deeper for a while. Also a decorator: `@deep_expressions()`."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _DEEPEST))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
