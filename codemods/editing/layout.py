"""The repository's line length, as its formatter's settings say."""

from __future__ import annotations

import re

DEFAULT = 88
CONFIGURED_IN = (
    *("pyproject.toml", "ruff.toml", ".ruff.toml", "setup.cfg", ".flake8", "tox.ini"),
    ".pre-commit-config.yaml",
)
"""Files that may say it, those of formatters first."""
_SETTING = re.compile(
    r"^\s*(?:line[-_]length|max[-_]line[-_]length)\s*=\s*(\d+)|--line-length[=\s,'\"]+(\d+)", re.MULTILINE
)
"""A setting of a formatter, or an option of its command, as hooks before a commit give it."""


def configured_line_length(texts: list[str]) -> int | None:
    """The first line length that one of these configuration files sets."""
    for text in texts:
        found = _SETTING.search(text)
        if found:
            return int(found[1] or found[2])
    return None
