"""The forms a report of `rewrite` is written in. Cheap to import: the command line needs the names only."""

from __future__ import annotations

import enum


class ReportFormat(str, enum.Enum):
    """How a report is written."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"
    HTML = "html"
    MD = "md"
