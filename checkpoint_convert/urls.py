"""Which sources and destinations are paths, and which lie behind a URL."""

from __future__ import annotations

import re
from pathlib import Path

_URL = re.compile(r"^[a-z][a-z0-9+.-]+(://|::)")
_OF_A_PATH = re.compile(r"^(?:file|local)://")


def path_of(text: str) -> Path | None:
    """The path that a source or destination is, or names as `file://`; None where it lies elsewhere."""
    named = _OF_A_PATH.sub("", text)
    return Path(named) if named != text or _URL.match(text) is None else None
