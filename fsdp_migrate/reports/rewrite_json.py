"""The report of `rewrite` as JSON. `docs/rewrite-report.schema.json` is the schema of version 1."""

from __future__ import annotations

import json

from codemods.model import Suppression
from codemods.record import finding_record
from fsdp_migrate import __version__
from fsdp_migrate.reports.rewrite import Entry, RewriteReport

VERSION = 1


def as_json(report: RewriteReport) -> str:
    """One JSON object and a newline."""
    rewrite = report.rewrite
    counts = {outcome.value: number for outcome, number in report.counts().items()}
    whole = {
        "version": VERSION,
        "tool": {"name": "fsdp-migrate", "version": __version__},
        "target": str(report.target),
        "written": report.written,
        "searched": rewrite.searched,
        "read": rewrite.read,
        "configurations": {"searched": rewrite.configs[0], "read": rewrite.configs[1]},
        "elsewhere": [{"path": p, "findings": n} for p, n in rewrite.elsewhere.items()],
        "summary": {
            "files_changed": len(rewrite.changes),
            "wrap_sites": len(rewrite.wrap_sites),
            "wrap_sites_translated": report.translated_wraps,
            "findings": counts,
            "codes": {
                code: {outcome.value: number for outcome, number in sorted(found.items(), key=_by_value)}
                for code, found in report.by_code()
            },
        },
        "changed": [{"path": c.path, "new": c.before is None} for c in rewrite.changes],
        "skipped": [{"path": p, "reason": why} for p, why in sorted(rewrite.skipped.items())],
        "wrap_sites": [
            {"path": s.path, "line": s.line, "form": s.form, "units": s.units} for s in rewrite.wrap_sites
        ],
        "suppressions": [_suppression(found) for found in rewrite.suppressions],
        "findings": [_finding(entry) for entries in report.by_file.values() for entry in entries],
    }
    # Names of files may hold bytes that are no UTF-8 (as lone surrogates): escaped, they are still JSON.
    return json.dumps(whole, indent=1, ensure_ascii=True) + "\n"


def _by_value(pair: tuple[object, int]) -> str:
    return str(pair[0])


def _suppression(found: Suppression) -> dict[str, object]:
    return {
        "path": found.path,
        "line": found.line,
        "column": found.column,
        "codes": list(found.codes),
        "reason": found.reason,
        "state": found.state.value,
        "findings": [{"code": code, "line": line} for code, line in found.findings],
    }


def _finding(entry: Entry) -> dict[str, object]:
    return finding_record(entry.item) | {
        "end_line": entry.end_line,
        "end_column": entry.end_column,
        "lines": [{"number": line.number, "text": line.text} for line in entry.lines],
        "lines_omitted": entry.omitted,
    }
