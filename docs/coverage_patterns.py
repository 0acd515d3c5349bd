"""The table by pattern: what real FSDP1 code looks like, and what becomes of it.

`patterns.toml` names the patterns, and the codes that answer each; a case folder says in `patterns.txt` which
patterns it shows. What happens is what the rewriter really did in those cases; `faults` says where that does
not hold the promise that every pattern is translated, and run, or refused with a remedy.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from coverage_cases import ROOT, Shown, case_links, how_it_ended, safeties, shown_cases, test_links

from codemods.model import Outcome

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LIST = Path(__file__).with_name("patterns.toml")
_SHOWN_CASES = 6


@dataclass(frozen=True, slots=True)
class Pattern:
    """A way of writing FSDP1 code, or a trap of moving it.

    Attributes:
        id: `P1`, `H32`.
        title: what it is.
        codes: the codes that answer it.
        tests: `path::test` of tests that run what is translated where a case folder cannot, such as a
            configuration file that a library reads.
    """

    id: str
    title: str
    codes: tuple[str, ...]
    tests: tuple[str, ...]

    @property
    def cases(self) -> list[Shown]:
        """The cases that show it, the executed ones first."""
        return sorted(
            (case for case in shown_cases() if self.id in case.patterns), key=lambda c: not c.is_executed
        )


@cache
def _told() -> dict[str, object]:
    return tomllib.loads(LIST.read_text(encoding="utf-8"))


def patterns() -> list[Pattern]:
    """All, in the order of the file."""
    found = []
    for name, entry in _told().items():
        if isinstance(entry, dict):
            codes, tests = entry.get("codes", []), entry.get("tests", [])
            found.append(Pattern(name, entry["title"], tuple(codes), tuple(tests)))
    return found


def faults() -> Iterator[str]:
    """Where the promise does not hold: one sentence each."""
    known = {pattern.id for pattern in patterns()}
    for case in shown_cases():
        for name in case.patterns:
            if name not in known:
                yield f"{case.name}/patterns.txt: there is no pattern {name}"
        if len(set(case.patterns)) != len(case.patterns):
            yield f"{case.name}/patterns.txt names a pattern twice"
    for pattern in patterns():
        yield from _faults_of(pattern)


def _faults_of(pattern: Pattern) -> Iterator[str]:
    if not pattern.cases:
        yield f"{pattern.id} has no case"
        return
    for test in pattern.tests:
        path, _, name = test.partition("::")
        text = (ROOT / path).read_text(encoding="utf-8") if (ROOT / path).is_file() else ""
        if f"def {name}(" not in text:
            yield f"{pattern.id}: there is no test {test}"
    if not pattern.codes:
        yield f"{pattern.id} has no code"
    for code in pattern.codes:
        items = [(case, item) for case in pattern.cases for item in case.of(code)]
        if not items:
            yield f"{pattern.id}: no case of it gives {code}"
        done = [case for case, item in items if item.outcome is Outcome.DONE]
        if done and not any(case.is_executed for case in done) and not pattern.tests:
            yield f"{pattern.id}: {code} is translated, and no case runs the translation"
        for case, item in items:
            if item.outcome is Outcome.TODO and not item.finding.remedy:
                yield f"{pattern.id}: {code} in {case.name} is left to a person without a remedy"
    for case in pattern.cases:
        if not case.changes and not case.reported:
            continue  # nothing of FSDP1 in it, or migrated already
        if not any(case.of(code) for code in pattern.codes):
            yield f"{pattern.id}: {case.name} shows none of its codes"


def what_happens(pattern: Pattern) -> str:
    """`translated; refused where it cannot be`, from the findings of its cases."""
    items = [item for case in pattern.cases for code in pattern.codes for item in case.of(code)]
    outcomes = {item.outcome for item in items}
    has_note = Outcome.NOTE in outcomes
    parts = []
    if Outcome.DONE in outcomes:
        parts.append("translated with a note" if has_note else "translated")
    elif has_note:
        parts.append("kept, with a note")
    if Outcome.TODO in outcomes:
        parts.append("some forms refused" if parts else "refused")
    return "; ".join(parts)


def table() -> list[str]:
    """The lines of the section."""
    lines = [
        "## By pattern",
        "",
        "What FSDP1 code looks like in public repositories (P), and what goes wrong when it is moved",
        "line by line (H). What happens is what the rewriter did in the cases listed.",
        "",
        "| pattern | what it is | what happens | codes | safety | cases |",
        "|---|---|---|---|---|---|",
    ]
    for pattern in patterns():
        codes = []
        for code in pattern.codes:
            items = [item for case in pattern.cases for item in case.of(code)]
            codes.append(f"{code}: {how_it_ended(items)}")
        own = [item for case in pattern.cases for code in pattern.codes for item in case.of(code)]
        cases = case_links([case.name for case in pattern.cases], _SHOWN_CASES)
        if pattern.tests:
            cases += "<br>" + test_links(pattern.tests, len(pattern.tests))
        lines.append(
            f"| {pattern.id} | {pattern.title} | {what_happens(pattern)} | {'<br>'.join(codes)} "
            f"| {', '.join(safeties(own))} | {cases} |"
        )
    return [*lines, ""]
