"""Rewrites a copy of one checkout by the program itself and holds the result against the laws.

Nothing here asks the rewriter's own analysis whether it is right: ruff, Python's parser and tokenizer, a
scan by name, and the bytes of the files decide.
"""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import corpus_scan
import corpus_tool
import laws
from corpus_scan import Place

LEAVE = shutil.ignore_patterns(*laws.NOT_CONTENT)


@dataclass(slots=True)
class Row:
    """One repository of the table.

    Attributes:
        calls: FSDP1 wrap calls that the independent scan counts; the program may know more forms.
        forms: wrap sites by what became of them: `inline`, `helper`, `left`.
        contexts: state-dict contexts in the input.
        contexts_left: those that still stand in the output, each with a finding that says why.
        contexts_silent: those that stand there without one.
        codes: code -> outcome -> number of findings.
        peak_bytes: of resident memory, in the first run.
        broken: the laws that do not hold, a line each.
    """

    name: str
    difficulty: str
    files: int = 0
    read: int = 0
    calls: int = 0
    forms: Counter[str] = field(default_factory=Counter)
    contexts: int = 0
    contexts_left: int = 0
    contexts_silent: int = 0
    codes: dict[str, Counter[str]] = field(default_factory=dict)
    cpu_s: float = 0.0
    peak_bytes: int = 0
    broken: list[str] = field(default_factory=list)

    @property
    def sites(self) -> int:
        """Wrap sites the program found."""
        return self.forms.total()

    @property
    def contexts_translated(self) -> int:
        """State-dict contexts that no longer stand in the output."""
        return self.contexts - self.contexts_left - self.contexts_silent

    @property
    def translated(self) -> int:
        """Wrap sites translated by default."""
        return self.sites - self.forms["left"]

    @property
    def todo(self) -> int:
        """Findings that need a person."""
        return sum(outcomes["todo"] for outcomes in self.codes.values())


def check(checkout: Path, difficulty: str, scratch: Path, keep: Path | None = None) -> Row:
    """Rewrite a copy of `checkout`, rewrite it again, undo it; say which laws broke.

    Args:
        scratch: an empty folder.
        keep: where a copy of the result stays, if anywhere.
    """
    row = Row(checkout.name, difficulty)
    after = scratch / "after"
    shutil.copytree(checkout, after, symlinks=True, ignore=LEAVE)
    before = laws.contents(after)
    try:
        first = corpus_tool.rewrite(after, scratch)
        result = (keep or scratch) / checkout.name
        shutil.copytree(after, result, symlinks=True, ignore=LEAVE)
        _describe(row, first)
        written = laws.contents(result)
        _hold_changes(row, *_changed_only(before, written, scratch))
        again = corpus_tool.rewrite(after, scratch)
        _hold_second_run(row, first, again, written, laws.contents(after))
        _hold_findings(row, first, again, checkout, result)
        if first.changed:
            corpus_tool.undo(after, scratch)
        restored = laws.contents(after)
        row.broken += [f"undo: {name} is not as it was" for name in _different(before, restored)]
    except corpus_tool.ToolDied as died:
        row.broken.append(f"crash: {died}")
    return row


def _describe(row: Row, first: corpus_tool.Run) -> None:
    row.files, row.read = first.searched, first.read
    row.forms = Counter(site.form for site in first.sites)
    for finding in first.findings:
        row.codes.setdefault(finding.code, Counter())[finding.outcome] += 1
    row.cpu_s, row.peak_bytes = first.cpu_s, first.peak_bytes


def _changed_only(before: dict[str, bytes], after: dict[str, bytes], scratch: Path) -> tuple[Path, Path]:
    """Two folders with the files that are not the same, as they were and as they are: linter, parser and
    tokenizer look at one file at a time."""
    folders = scratch / "changed" / "before", scratch / "changed" / "after"
    for folder, files in zip(folders, (before, after), strict=True):
        folder.mkdir(parents=True)
        for name in _different(before, after):
            if name in files:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(files[name])
    return folders


def _hold_changes(row: Row, checkout: Path, result: Path) -> None:
    unparsable = laws.parse_errors(result) - laws.parse_errors(checkout)
    row.broken += [f"no longer parses: {name}" for name in sorted(unparsable)]
    row.broken += [
        f"introduced {code} in {path}: {message}"
        for path, code, message in laws.introduced(laws.ruff_findings(checkout), laws.ruff_findings(result))
    ]
    row.broken += [f"comment lost: {comment}" for comment in laws.lost_comments(checkout, result)]


def _hold_second_run(
    row: Row,
    first: corpus_tool.Run,
    again: corpus_tool.Run,
    written: dict[str, bytes],
    rewritten: dict[str, bytes],
) -> None:
    row.broken += [f"second run changes {name}" for name in _different(written, rewritten)]
    old, new = first.open(), again.open()
    row.broken += [f"second run no longer reports {_said(item)}" for item in sorted(old - new)]
    row.broken += [f"second run reports {_said(item)}" for item in sorted(new - old)]


def _hold_findings(
    row: Row, first: corpus_tool.Run, again: corpus_tool.Run, checkout: Path, result: Path
) -> None:
    spoken_of = again.spoken_of()
    left = laws.silent_leftovers(result, spoken_of)
    row.broken += [f"leftover without finding: {item.path}:{item.line} {item.name}" for item in left]
    source, output = corpus_scan.scan(checkout), corpus_scan.scan(result)
    row.calls, row.contexts, row.contexts_left = len(source.wraps), len(source.contexts), len(output.contexts)
    known = {(s.path, s.line) for s in first.sites} | {(f.path, f.line) for f in first.findings}
    row.broken += [f"wrap call not seen: {_at(call)}" for call in source.wraps if not call.is_among(known)]
    silent = [context for context in output.contexts if not context.is_among(spoken_of)]
    row.contexts_silent = len(silent)
    row.contexts_left -= len(silent)
    row.broken += [f"state-dict context without a finding: {_at(context)}" for context in silent]


def _different(one: dict[str, bytes], other: dict[str, bytes]) -> list[str]:
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def _said(item: tuple[str, str]) -> str:
    return f"{item[1]} in {item[0]}"


def _at(place: Place) -> str:
    return f"{place.path}:{place.line}"
