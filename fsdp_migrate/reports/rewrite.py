"""What a report of `rewrite` says, in whatever form: a summary, then every finding by file with its lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from codemods.model import WHOLE_FILE, Outcome, Reported, Rewrite
from codemods.sources import decode
from fsdp_migrate.reports.formats import ReportFormat
from fsdp_migrate.reports.visible import clipped

_LINE_END = re.compile(r"\r\n|\r|\n")
_SHOWN_LINES = 12
_NAMED = 5

OUTCOMES = {
    Outcome.TODO: "left to you",
    Outcome.NOTE: "to know",
    Outcome.IGNORED: "ignored",
    Outcome.DONE: "translated",
}
"""In the order of what a reader has to do."""

WRAP_FORMS = {"inline": "written out", "helper": "through the helper module", "left": "left to a person"}

_LINES_BEFORE = "Line numbers are those before the rewrite."


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file as it was before the rewrite, without its line ending; numbers count from 1.

    Of a long line it is the part around the finding.
    """

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One finding with the lines it is about; none where the file could not be read.

    Attributes:
        end_line, end_column: of the last character, from 1, the column just after it.
        omitted: lines of a long statement that are not shown.
    """

    item: Reported
    lines: tuple[Line, ...] = ()
    end_line: int = 1
    end_column: int = 1
    omitted: int = 0

    @property
    def outcome(self) -> str:
        """What became of it, in words."""
        return OUTCOMES[self.item.outcome]

    @property
    def why(self) -> str:
        """More than the message says: why an edit was not applied, the reason of a suppression, the units."""
        return self.item.detail or self.item.finding.detail


@dataclass(frozen=True, slots=True)
class RewriteReport:
    """A rewrite as it is shown.

    Attributes:
        target: directory that paths are relative to.
        written: the changes were written to disk.
        prefix: path of the target within its git repository, `""` or ending in `/`.
    """

    rewrite: Rewrite
    target: Path
    written: bool
    prefix: str = ""
    by_file: Mapping[str, Sequence[Entry]] = field(default_factory=dict)

    @property
    def translated_wraps(self) -> int:
        """Wrap calls that were, or would be, translated."""
        return sum(site.form != "left" for site in self.rewrite.wrap_sites)

    def counts(self) -> dict[Outcome, int]:
        """Findings by outcome; every outcome is there."""
        found = Counter(item.outcome for item in self.rewrite.reported)
        return {outcome: found[outcome] for outcome in OUTCOMES}

    def by_code(self) -> list[tuple[str, Counter[Outcome]]]:
        """Code -> findings by outcome, in the order of the codes."""
        found: dict[str, Counter[Outcome]] = {}
        for item in self.rewrite.reported:
            found.setdefault(item.finding.code, Counter())[item.outcome] += 1
        return sorted(found.items())


def build_report(rewrite: Rewrite, target: Path, *, written: bool, prefix: str = "") -> RewriteReport:
    """Gather the lines of every finding.

    Args:
        written: whether the changes were written to disk.
        prefix: path of the target within its git repository, `""` or ending in `/`.
    """
    originals = {change.path: change.before for change in rewrite.changes}
    texts: dict[str, str | None] = {}
    by_file: dict[str, list[Entry]] = {}
    for item in rewrite.reported:
        path = item.finding.place.path
        if path not in texts:
            texts[path] = None if path in rewrite.skipped else _text(target / path, originals.get(path))
        by_file.setdefault(path, []).append(_entry(item, texts[path]))
    return RewriteReport(rewrite, target, written, prefix, by_file)


def _text(path: Path, before: bytes | None) -> str | None:
    try:
        data = path.read_bytes() if before is None else before
        return decode(str(path), data).text
    except (OSError, SyntaxError, ValueError):
        return None


def _entry(item: Reported, text: str | None) -> Entry:
    place = item.finding.place
    if text is None or place.span == WHOLE_FILE:
        return Entry(item, (), place.line, place.column)
    first = len(_LINE_END.findall(text, 0, place.span.start))
    inside = text[place.span.start : place.span.end].rstrip("\r\n")
    ends = list(_LINE_END.finditer(inside))
    last = first + len(ends)
    column = len(inside) - ends[-1].end() + 1 if ends else place.column + len(inside)
    # Only the part of the text that is shown is cut into lines: files are long, findings are many.
    start = max(text.rfind("\n", 0, place.span.start), text.rfind("\r", 0, place.span.start)) + 1
    stop = _LINE_END.search(text, place.span.start + len(inside))
    shown = _LINE_END.split(text[start : stop.start() if stop else len(text)])
    lines = tuple(
        Line(first + 1 + offset, clipped(line, about=0 if offset else place.column - 1))
        for offset, line in enumerate(shown[:_SHOWN_LINES])
    )
    return Entry(item, lines, last + 1, column, max(0, len(shown) - _SHOWN_LINES))


def searched(report: RewriteReport) -> str:
    """What was looked at; never left out, so that nothing found is not mistaken for an all-clear."""
    rewrite = report.rewrite
    text = (
        f"Searched {count(rewrite.searched, 'Python file')}, read {rewrite.read} of them "
        "(those that name FSDP, and what they import or are imported by)."
    )
    if rewrite.configs[0]:
        files, read = rewrite.configs
        text += f" Of {count(files, 'configuration file')}, {read} may hold FSDP settings and were read."
    if rewrite.skipped:
        text += f" {count(len(rewrite.skipped), 'file')} could not be read; see FM901."
    if rewrite.elsewhere:
        names = list(rewrite.elsewhere)
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        was = "was" if len(names) == 1 else "were"
        text += (
            f" FSDP1 code also stands in {count(len(names), 'file')} that {was} not named and that nothing "
            f"below speaks of: {', '.join(names[:_NAMED])}{more}."
        )
    return text


def outcome(report: RewriteReport) -> str:
    """What came of it, in one sentence or two."""
    rewrite = report.rewrite
    if not rewrite.wrap_sites and not rewrite.reported:
        named = " that were named" if rewrite.elsewhere else ""
        return f"No FSDP1 code was found in {'the files' if named else 'them'}{named}."
    verb = "Changed" if report.written else "Would change"
    counts = ", ".join(f"{number} {OUTCOMES[kind]}" for kind, number in report.counts().items())
    return (
        f"{verb} {count(len(rewrite.changes), 'file')}; {report.translated_wraps} of "
        f"{count(len(rewrite.wrap_sites), 'wrap call')} translated. Findings: {counts}."
    )


def lines_before(report: RewriteReport) -> str:
    """What to say of the line numbers; nothing where the files are as they were, or no line is named."""
    return _LINES_BEFORE if report.written and report.rewrite.changes and report.by_file else ""


def count(number: int, noun: str) -> str:
    """`1 file`, `2 files`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def meanings() -> dict[str, str]:
    """Code -> one line saying what the finding means."""
    from codemods.rule import all_rules

    return {code: line for rule in all_rules() for code, line in rule.codes.items()}


def render(report: RewriteReport, form: ReportFormat) -> str:
    """The report in one of its forms, ending in a newline."""
    from fsdp_migrate.reports import rewrite_html, rewrite_json, rewrite_markdown, rewrite_sarif, rewrite_text

    match form:
        case ReportFormat.TEXT:
            return rewrite_text.as_text(report)
        case ReportFormat.JSON:
            return rewrite_json.as_json(report)
        case ReportFormat.SARIF:
            return rewrite_sarif.as_sarif(report)
        case ReportFormat.HTML:
            return rewrite_html.as_html(report)
        case ReportFormat.MD:
            return rewrite_markdown.as_markdown(report)
