"""Writes docs/coverage.md from the rules and the case folders: construct, code, safety, case.

    python -m docs.make_coverage            write it
    python -m docs.make_coverage --check    leave with 1 if it is not up to date

Every case is rewritten as its test does it; safety and outcome are those the rewriter really gave.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from codemods import ownership
from codemods.model import Options, Outcome
from codemods.plan import plan_rewrite
from codemods.rule import Rule, all_rules
from codemods.sources import find_files

ROOT = Path(__file__).parents[1]
CASES = ROOT / "tests" / "codemods" / "cases"
PAGE = ROOT / "docs" / "coverage.md"
_SHOWN_CASES = 4
_OUTCOMES = {
    Outcome.DONE: "translated",
    Outcome.TODO: "left to a person",
    Outcome.NOTE: "note",
    Outcome.IGNORED: "ignored",
}
_ROOMS = {
    "kwargs": "Keywords of the constructor",
    "": "The wrap call",
    "methods": "Methods",
    "names": "Names and surroundings",
    "ecosystem": "Configuration and other libraries",
}


@dataclass(slots=True)
class Seen:
    """What the cases show of one code: safeties and outcomes given, and the cases."""

    safeties: set[str] = field(default_factory=set)
    outcomes: set[Outcome] = field(default_factory=set)
    cases: list[str] = field(default_factory=list)


def seen_by_code() -> dict[str, Seen]:
    """Rewrite every case in memory."""
    found: dict[str, Seen] = {}
    for before in sorted(CASES.glob("*/*/*/before")):
        case = before.parent.relative_to(CASES).as_posix()
        told = before.parent / "options.txt"
        unsafe = told.exists() and "--unsafe-fixes" in told.read_text()
        rewrite = plan_rewrite(before, find_files(before, [before]), Options(unsafe_fixes=unsafe))
        for item in rewrite.reported:
            seen = found.setdefault(item.finding.code, Seen())
            seen.safeties.add("-" if item.finding.is_note else item.finding.safety.name.lower())
            seen.outcomes.add(item.outcome)
            if case not in seen.cases:
                seen.cases.append(case)
    return found


def room_of(rule: Rule) -> str:
    """The folder of a rule's file under `codemods/rules`."""
    for room, rules in _rooms().items():
        if rule.name in rules:
            return room
    return ""


_found_rooms: dict[str, set[str]] = {}


def _rooms() -> dict[str, set[str]]:
    """Room -> names of its rules, by the package they stand in."""
    if not _found_rooms:
        for rule in all_rules():
            if rule.check is not None:  # codemods.rules.<room>.<file>, or codemods.rules.<file>
                path = rule.check.__module__.split(".")[2:-1]
                _found_rooms.setdefault("".join(path), set()).add(rule.name)
        _found_rooms["kwargs"] = set(ownership.KEYWORDS)
    return _found_rooms


def rows_of(rule: Rule, seen: dict[str, Seen]) -> list[str]:
    """Table rows of one rule: one for each code; one in all for a keyword that has none."""
    own = [
        path.parent.relative_to(CASES).as_posix() for path in sorted(CASES.glob(f"*/{rule.name}/*/before"))
    ]
    if not rule.codes:
        dropped = [case for case in (seen.get("FM101", Seen()).cases) if _names(case, rule.name)]
        wraps = set[str]().union(*(seen[c].safeties for c in ("FM101", "FM102") if c in seen))
        return [
            f"| `{rule.name}` | | {_sentence(rule)} | {', '.join(sorted(wraps))} | {_links(own or dropped)} |"
        ]
    rows = []
    for code, meaning in rule.codes.items():
        known = seen.get(code, Seen())
        cases = sorted(known.cases, key=lambda case: (case not in own, case))
        how = ", ".join(words for outcome, words in _OUTCOMES.items() if outcome in known.outcomes)
        safety = ", ".join(sorted(known.safeties - {"-"})) or ("note" if known.safeties else "")
        safety += f": {how}" if how and how != safety else ""
        rows.append(f"| {_construct(rule)} | {code} | {_cell(meaning)} | {safety} | {_links(cases)} |")
    return rows


def _names(case: str, keyword: str) -> bool:
    return any(f"{keyword}=" in path.read_text() for path in (CASES / case / "before").rglob("*.py"))


def _sentence(rule: Rule) -> str:
    return _cell(rule.first_sentence)


def _construct(rule: Rule) -> str:
    return f"`{rule.name}`" if " " not in rule.name else rule.name


def _links(cases: list[str]) -> str:
    if not cases:
        return "none yet"
    shown = [
        f"[{case}](../tests/codemods/cases/{case}){'*' if (CASES / case / 'runs.json').exists() else ''}"
        for case in cases[:_SHOWN_CASES]
    ]
    more = len(cases) - _SHOWN_CASES
    return "<br>".join(shown) + (f"<br>and {more} more" if more > 0 else "")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def page() -> str:
    """The whole of docs/coverage.md."""
    seen = seen_by_code()
    rules = sorted(all_rules(), key=lambda r: (min(r.codes, default="FM000"), r.name))
    parts = [
        "# What is covered",
        "",
        "Made by `python -m docs.make_coverage` from the rules and the case folders; do not edit.",
        "",
        "A finding is *safe* (behaves as before), *unsafe* (can change numerics, memory or comments;",
        "applied with `--unsafe-fixes` only) or *manual* (left to a person, with the reason and the",
        "remedy). Cases with a star are run: the FSDP1 original and the FSDP2 result on ranks of one",
        "machine; losses, gradients, weights and saved files are compared bit for bit. `fsdp-migrate",
        "explain` prints the manual page of a construct or code.",
        "",
    ]
    for room, title in _ROOMS.items():
        chosen = [rule for rule in rules if room_of(rule) == room]
        if chosen:
            parts += [
                f"## {title}",
                "",
                "| construct | code | what it says | safety | cases |",
                "|---|---|---|---|---|",
            ]
            parts += [row for rule in chosen for row in rows_of(rule, seen)]
            parts.append("")
    parts += ["## FSDP1's public surface", "", "Which construct above speaks for what torch exports.", ""]
    parts += _surface("Methods of `FullyShardedDataParallel`", ownership.METHODS)
    parts += _surface("Names of `torch.distributed.fsdp`", ownership.EXPORTED)
    parts += _surface("Names of `torch.distributed.fsdp.wrap`", ownership.EXPORTED_BY_WRAP)
    same = (f"`{name}`: {why}." for name, why in ownership.UNCHANGED_METHODS.items())
    parts += ["Unchanged:", "", *(f"- {line}" for line in same), ""]
    return "\n".join(parts)


def _surface(title: str, owners: dict[str, str]) -> Iterable[str]:
    yield from (f"| {title} | construct |", "|---|---|")
    for name, owner in sorted(owners.items()):
        yield f"| `{name}` | {owner} |"
    yield ""


def main() -> int:
    """Write the page, or compare it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; leave with 1 if out of date")
    told = parser.parse_args()
    new = page()
    if told.check:
        if PAGE.exists() and PAGE.read_text(encoding="utf-8") == new:
            return 0
        print(f"{PAGE.name} is out of date: run python -m docs.make_coverage", file=sys.stderr)
        return 1
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
