"""The report of `rewrite` as SARIF 2.1.0, for code scanning and editors.

Source: OASIS Static Analysis Results Interchange Format 2.1.0, sections 3.13 (log),
3.27 (result), 3.35 (suppression).
"""

from __future__ import annotations

import hashlib
import inspect
import json
import urllib.parse
from collections import Counter
from collections.abc import Mapping

from codemods.model import Outcome
from codemods.rule import Rule, all_rules
from fsdp_migrate import __version__
from fsdp_migrate.reports.rewrite import Entry, RewriteReport

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {
    Outcome.TODO: "warning",
    Outcome.NOTE: "note",
    Outcome.IGNORED: "warning",
    Outcome.DONE: "note",
}


def as_sarif(report: RewriteReport) -> str:
    """One SARIF log and a newline.

    Locations are relative to the git repository that holds the target, as code scanning wants them;
    outside git to the target itself.
    """
    owners = {code: rule for rule in reversed(all_rules()) for code in rule.codes}
    codes = [code for code, _ in report.by_code()]
    seen: Counter[str] = Counter()
    run = {
        "tool": {
            "driver": {
                "name": "fsdp-migrate",
                "version": __version__,
                "rules": [_rule(code, owners) for code in codes],
            }
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": True}],
        "results": [
            _result(report, entry, codes, seen) for entries in report.by_file.values() for entry in entries
        ],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def _rule(code: str, owners: Mapping[str, Rule]) -> dict[str, object]:
    owner = owners.get(code)
    if owner is None:
        return {"id": code}
    manual = inspect.cleandoc(owner.manual)
    return {
        "id": code,
        "name": _pascal(owner.name),
        "shortDescription": {"text": owner.codes[code]},
        "fullDescription": {"text": owner.first_sentence or owner.codes[code]},
        "help": {"text": manual or owner.codes[code], "markdown": manual or owner.codes[code]},
    }


def _pascal(name: str) -> str:
    words = "".join(c if c.isalnum() else " " for c in name).split()
    return "".join(word[0].upper() + word[1:] for word in words)


def _result(report: RewriteReport, entry: Entry, codes: list[str], seen: Counter[str]) -> dict[str, object]:
    found = entry.item.finding
    text = found.message
    if found.remedy and entry.item.outcome is not Outcome.DONE:
        text += f"\n{found.remedy}"
    if entry.why and entry.item.outcome is not Outcome.IGNORED:
        text += f"\n{entry.why}"
    result: dict[str, object] = {
        "ruleId": found.code,
        "ruleIndex": codes.index(found.code),
        "level": _LEVELS[entry.item.outcome],
        "message": {"text": text},
        "locations": [{"physicalLocation": _location(report, entry)}],
        "partialFingerprints": {"fsdpMigrateFinding/v1": _fingerprint(entry, seen)},
        "properties": {"outcome": entry.item.outcome.value, "safety": found.safety.name.lower()},
    }
    if entry.item.outcome is Outcome.IGNORED:
        suppression: dict[str, object] = {"kind": "inSource", "justification": entry.why}
        for comment in report.rewrite.suppressions:
            if comment.path == found.place.path and (found.code, found.place.line) in comment.findings:
                region = {"startLine": comment.line, "startColumn": comment.column}
                where = {"artifactLocation": {"uri": _uri(report, comment.path)}, "region": region}
                suppression["location"] = {"physicalLocation": where}
        result["suppressions"] = [suppression]
    return result


def _location(report: RewriteReport, entry: Entry) -> dict[str, object]:
    place = entry.item.finding.place
    location: dict[str, object] = {"artifactLocation": {"uri": _uri(report, place.path)}}
    if entry.lines:
        location["region"] = {
            "startLine": place.line,
            "startColumn": place.column,
            "endLine": entry.end_line,
            "endColumn": entry.end_column,
            "snippet": {"text": "\n".join(line.text for line in entry.lines)},
        }
    return location


def _uri(report: RewriteReport, path: str) -> str:
    return urllib.parse.quote((report.prefix + path).encode(errors="surrogateescape"))


def _fingerprint(entry: Entry, seen: Counter[str]) -> str:
    """The same for the same finding wherever its lines move to: code, path, text, which of several."""
    found = entry.item.finding
    text = "\n".join(line.text.strip() for line in entry.lines)
    key = hashlib.sha256(
        f"{found.code}\0{found.place.path}\0{text}".encode(errors="surrogateescape")
    ).hexdigest()[:32]
    seen[key] += 1
    return f"{key}:{seen[key]}"
