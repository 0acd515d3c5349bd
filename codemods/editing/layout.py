"""The repository's line length, as its formatter's settings say."""

from __future__ import annotations

import re

DEFAULT = 88
_SETTING = re.compile(r"^\s*(?:line[-_]length|max[-_]line[-_]length)\s*=\s*(\d+)", re.MULTILINE)


def configured_line_length(texts: list[str]) -> int | None:
    """The first line length that one of these configuration files sets."""
    for text in texts:
        found = _SETTING.search(text)
        if found:
            return int(found.group(1))
    return None
