"""Writes docs/coverage.md from the rules and the case folders: construct, code, safety, case.

    python -m docs.make_coverage            write it
    python -m docs.make_coverage --check    leave with 1 if it is not up to date

Every case is rewritten as its test does it; safety and outcome are those the rewriter really gave.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # so that both ways of starting it find its parts

import coverage_patterns
from coverage_cases import (
    CASES,
    ROOT,
    Shown,
    case_links,
    how_it_ended,
    safeties,
    shown_cases,
    test_links,
    tests_by_code,
)

from codemods import ownership
from codemods.rule import Rule, all_rules

PAGE = ROOT / "docs" / "coverage.md"
_SHOWN_CASES = 4
_SHOWN_TESTS = 2
_ROOMS = {
    "kwargs": "Keywords of the constructor",
    "": "The wrap call",
    "methods": "Methods",
    "names": "Names and surroundings",
    "ecosystem": "Configuration and other libraries",
}


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


def rows_of(rule: Rule) -> list[str]:
    """Table rows of one rule: one for each code; one in all for a keyword that has none."""
    own = [
        path.parent.relative_to(CASES).as_posix() for path in sorted(CASES.glob(f"*/{rule.name}/*/before"))
    ]
    if not rule.codes:
        wraps = [case for case in shown_cases() if case.of("FM101") or case.of("FM102")]
        dropped = [case.name for case in wraps if case.of("FM101") and _names(case, rule.name)]
        items = [item for case in wraps for code in ("FM101", "FM102") for item in case.of(code)]
        cells = ["", _sentence(rule), ", ".join(safeties(items)), case_links(own or dropped, _SHOWN_CASES)]
        return [f"| `{rule.name}` | {' | '.join(cells)} |"]
    return [_row(rule, code, own) for code in rule.codes]


def _row(rule: Rule, code: str, own: list[str]) -> str:
    known = [case for case in shown_cases() if case.of(code)]
    cases = sorted((case.name for case in known), key=lambda name: (name not in own, name))
    items = [item for case in known for item in case.of(code)]
    how = how_it_ended(items)
    safety = ", ".join(safeties(items)) or ("note" if items else "")
    safety += f": {how}" if how and how != safety else ""
    links = case_links(cases, _SHOWN_CASES) or test_links(tests_by_code().get(code, ()), _SHOWN_TESTS)
    return f"| {_construct(rule)} | {code} | {_cell(rule.codes[code])} | {safety} | {links} |"


def _names(case: Shown, keyword: str) -> bool:
    return any(f"{keyword}=" in path.read_text() for path in (CASES / case.name / "before").rglob("*.py"))


def _sentence(rule: Rule) -> str:
    return _cell(rule.first_sentence)


def _construct(rule: Rule) -> str:
    return f"`{rule.name}`" if " " not in rule.name else rule.name


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def page() -> str:
    """The whole of docs/coverage.md."""
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
        "explain` prints the manual page of a construct or code. Where a code has no case, a test that",
        "gives it is named.",
        "",
        *coverage_patterns.table(),
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
            parts += [row for rule in chosen for row in rows_of(rule)]
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
