"""The verdict of `verify` as text for a terminal, JSON for programs, Markdown for a pull request."""

from __future__ import annotations

import json
import math
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from fsdp_migrate import console
from fsdp_migrate.reports import output_file, parity_html, parity_markdown, parity_text

if TYPE_CHECKING:
    from fsdp_migrate.verify.model import ParityReport


def show(report: ParityReport, form: str, output: Path | None) -> None:
    """Write the report to stdout, or to `output`, and then its verdict alone to stdout.

    Args:
        form: "text", "json", "md" or "html".
    """
    if output is None and form == "text":
        parity_text.show(report, console.results())
        return
    text = render(report, form)
    if output is None:
        print(text)
        return
    output_file.save(output, text + "\n")
    head = [parity_text.headline(report), *(f"Beware: {line}" for line in report.warnings)]
    console.results().print("\n".join([*head, f"report: {output}"]), markup=False)


def render(report: ParityReport, form: str) -> str:
    """The report in one of its forms, without colour."""
    match form:
        case "json":
            return json.dumps({"version": 1, **_fields(report)}, indent=2, ensure_ascii=False)
        case "md":
            return parity_markdown.render(report)
        case "html":
            return parity_html.render(report)
        case _:
            return parity_text.render(report)


def _fields(report: ParityReport) -> dict[str, object]:
    found = plain(report)
    assert isinstance(found, dict)
    return found


def plain(value: object) -> object:
    """Dataclasses as objects; numbers that JSON does not have (NaN, infinity) as strings."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {plain(key): plain(one) for key, one in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Path):
        return str(value)
    return value
