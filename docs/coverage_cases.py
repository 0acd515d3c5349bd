"""What the case folders show: each rewritten in memory as its test does it, with the findings it really gave.

Also which tests outside the case folders speak of a code by name.
"""

from __future__ import annotations

import ast
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from codemods.model import Options, Outcome, Reported
from codemods.plan import plan_rewrite
from codemods.sources import find_files

ROOT = Path(__file__).parents[1]
CASES = ROOT / "tests" / "codemods" / "cases"
TESTS = ROOT / "tests"
_CODE = re.compile(r"\bFM\d{3}\b")
OUTCOMES = {
    Outcome.DONE: "translated",
    Outcome.TODO: "left to a person",
    Outcome.NOTE: "note",
    Outcome.IGNORED: "ignored",
}


@dataclass(frozen=True, slots=True)
class Shown:
    """One case folder.

    Attributes:
        name: `<group>/<construct>/<case>`.
        patterns: ids in its `patterns.txt`.
        is_executed: FSDP1 before and FSDP2 after are run and compared.
        changes: whether the rewrite changes any file.
        reported: what the rewrite said.
    """

    name: str
    patterns: tuple[str, ...]
    is_executed: bool
    changes: bool
    reported: tuple[Reported, ...]

    def of(self, code: str) -> list[Reported]:
        """The findings of one code."""
        return [item for item in self.reported if item.finding.code == code]


@cache
def shown_cases() -> tuple[Shown, ...]:
    """Every case folder, rewritten."""
    with tempfile.TemporaryDirectory() as scratch:
        return tuple(
            _shown(before.parent, Path(scratch).resolve()) for before in sorted(CASES.glob("*/*/*/before"))
        )


def _shown(folder: Path, scratch: Path) -> Shown:
    told = folder / "options.txt"
    options = _options(told.read_text(encoding="utf-8").split() if told.exists() else [])
    # Away from this repository: a rewrite looks for helpers in what is around it.
    before = scratch / folder.relative_to(CASES)
    shutil.copytree(folder / "before", before)
    rewrite = plan_rewrite(before, find_files(before, [before]), options)
    tags = folder / "patterns.txt"
    return Shown(
        folder.relative_to(CASES).as_posix(),
        tuple(tags.read_text(encoding="utf-8").split()) if tags.exists() else (),
        (folder / "runs.json").exists(),
        bool(rewrite.changes),
        rewrite.reported,
    )


def _options(told: list[str]) -> Options:
    """Raises ValueError on an option that a case cannot have."""
    improvements = [word for word in told if word.startswith("--modernize=")]
    stray = set(told) - {"--unsafe-fixes", "--drop-fsdp1", "--target-torch", *improvements}
    versions = {word for word in stray if re.fullmatch(r"\d+\.\d+", word)}
    if stray - versions:
        raise ValueError(f"options.txt: {', '.join(sorted(stray - versions))} is not known here")
    major, _, minor = (versions.pop() if versions else "2.6").partition(".")
    return Options(
        unsafe_fixes="--unsafe-fixes" in told,
        drop_fsdp1="--drop-fsdp1" in told,
        target_torch=(int(major), int(minor)),
        modernize=tuple(word.partition("=")[2] for word in improvements),
    )


def how_it_ended(items: list[Reported]) -> str:
    """`translated`, `note`, `left to a person`: the outcomes of some findings, in words."""
    outcomes = {item.outcome for item in items}
    return ", ".join(words for outcome, words in OUTCOMES.items() if outcome in outcomes)


def safeties(items: list[Reported]) -> list[str]:
    """`safe`, `unsafe`, `manual` of the findings that are more than notes."""
    return sorted({item.finding.safety.name.lower() for item in items if not item.finding.is_note})


@cache
def tests_by_code() -> dict[str, tuple[str, ...]]:
    """Code -> `path::test` of the tests that name it, those of the rewriter only; `path` for a whole file."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        if CASES in path.parents or not path.is_relative_to(TESTS / "codemods"):
            continue
        where = path.relative_to(ROOT).as_posix()
        for code, test in _named_in(path.read_text(encoding="utf-8")):
            entry = f"{where}::{test}" if test else where
            if entry not in found.setdefault(code, []):
                found[code].append(entry)
    return {code: tuple(sorted(tests, key=lambda t: "::" not in t)) for code, tests in found.items()}


def _named_in(text: str) -> Iterator[tuple[str, str]]:
    """(code, name of the test function; empty outside of one)."""
    for node in ast.parse(text).body:
        start = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        own = "\n".join(text.splitlines()[start - 1 : node.end_lineno])
        is_test = isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        for code in sorted(set(_CODE.findall(own))):
            yield code, node.name if is_test and isinstance(node, ast.FunctionDef) else ""


def case_links(names: list[str], limit: int) -> str:
    """Links to case folders for a table cell; a star marks the executed ones."""
    executed = {case.name for case in shown_cases() if case.is_executed}
    links = [f"[{n}](../tests/codemods/cases/{n}){'*' if n in executed else ''}" for n in names[:limit]]
    more = len(names) - limit
    return "<br>".join(links) + (f"<br>and {more} more" if more > 0 else "")


def test_links(entries: tuple[str, ...], limit: int) -> str:
    """Links to tests for a table cell."""
    links = []
    for entry in entries[:limit]:
        path, _, name = entry.partition("::")
        links.append(f"[{Path(path).stem}{'::' + name if name else ''}](../{path})")
    more = len(entries) - limit
    return "<br>".join(links) + (f"<br>and {more} more" if more > 0 else "")
