"""`fsdp-migrate explain` and `fsdp-migrate rules`: the manual pages of the rules."""

from __future__ import annotations

import difflib
import enum
import inspect
import json
import re
from typing import TYPE_CHECKING, Annotated

import typer

from fsdp_migrate.errors import UsageError
from fsdp_migrate.exit_codes import ExitCode

if TYPE_CHECKING:
    from codemods.rule import Rule


def explain(
    subject: Annotated[
        str, typer.Argument(help="A code (FM102) or an FSDP1 name (no_sync, auto_wrap_policy).")
    ],
) -> ExitCode:
    """Print the manual page of a rule.

    Example: fsdp-migrate explain sharding_strategy
    """
    from codemods.ownership import owner_of
    from codemods.rule import all_rules
    from fsdp_migrate import console

    wanted = subject.lower()
    owner = owner_of(subject.rpartition(".")[2])
    found = [r for r in all_rules() if wanted == r.name.lower() or subject.upper() in r.codes]
    found = found or [r for r in all_rules() if r.name == owner]
    if not found:
        raise UsageError(f"no rule is called {subject}", hint=_hint(subject, all_rules()))
    screen = console.results()
    for rule in found:
        screen.print(rule.name, style="bold", markup=False)
        for code, line in rule.codes.items():
            screen.print(f"  {code}  {line}", markup=False)
        screen.print()
        screen.print(inspect.cleandoc(rule.manual), markup=False)
        screen.print()
    return ExitCode.OK


def _hint(subject: str, known: list[Rule]) -> str:
    """What may have been meant: codes that begin so, names that hold it or are spelled nearly so."""
    if re.fullmatch(r"CK\d*", subject, re.IGNORECASE):
        return "Codes that begin with CK are about checkpoints: docs/checkpoints.md lists them."
    codes = sorted(code for rule in known for code in rule.codes)
    begun = [code for code in codes if code.startswith(subject.upper())]
    if begun:
        return f"Codes that begin so: {', '.join(begun)}."
    wanted = subject.lower()
    names = {**{rule.name.lower(): rule.name for rule in known}, **{code.lower(): code for code in codes}}
    near = [name for name in names if wanted in name or name in wanted]
    near += [name for name in difflib.get_close_matches(wanted, names, n=3) if name not in near]
    if near:
        return f"Perhaps: {', '.join(names[name] for name in near)}."
    return "`fsdp-migrate rules` lists all of them."


class RulesFormat(str, enum.Enum):
    """How the list of rules is written."""

    TEXT = "text"
    JSON = "json"


def rules(
    format_: Annotated[
        RulesFormat, typer.Option("--format", help="Form of the list.", case_sensitive=False)
    ] = RulesFormat.TEXT,
) -> ExitCode:
    """List every rule: its name, its codes, and its first sentence; as JSON with its whole manual page.

    Example: fsdp-migrate rules
    """
    from codemods.rule import all_rules

    found = sorted(all_rules(), key=lambda r: (min(r.codes, default="FM000"), r.name))
    if format_ is RulesFormat.JSON:
        print(json.dumps([_record(rule) for rule in found], indent=1))
        return ExitCode.OK
    from fsdp_migrate import console

    screen = console.results()
    for rule in found:
        codes = ", ".join(rule.codes) or "no finding"
        screen.print(f"{rule.name}  [{codes}]\n    {rule.first_sentence}", markup=False)
    return ExitCode.OK


def _record(rule: Rule) -> dict[str, object]:
    return {
        "name": rule.name,
        "codes": dict(rule.codes),
        "summary": rule.first_sentence,
        "manual": inspect.cleandoc(rule.manual),
    }
