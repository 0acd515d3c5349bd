"""`fsdp-migrate explain` and `fsdp-migrate rules`: the manual pages of the rules."""

from __future__ import annotations

import inspect
from typing import Annotated

import typer

from fsdp_migrate.errors import UsageError
from fsdp_migrate.exit_codes import ExitCode


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
        close = [r.name for r in all_rules() if wanted in r.name.lower() or r.name.lower() in wanted]
        hint = f"Perhaps: {', '.join(close)}." if close else "`fsdp-migrate rules` lists all of them."
        raise UsageError(f"no rule is called {subject}", hint=hint)
    screen = console.results()
    for rule in found:
        screen.print(rule.name, style="bold", markup=False)
        for code, line in rule.codes.items():
            screen.print(f"  {code}  {line}", markup=False)
        screen.print()
        screen.print(inspect.cleandoc(rule.manual), markup=False)
        screen.print()
    return ExitCode.OK


def rules() -> ExitCode:
    """List every rule: its name, its codes, and its first line.

    Example: fsdp-migrate rules
    """
    from codemods.rule import all_rules
    from fsdp_migrate import console

    screen = console.results()
    for rule in sorted(all_rules(), key=lambda r: (min(r.codes, default="FM000"), r.name)):
        first = inspect.cleandoc(rule.manual).splitlines()[0] if rule.manual else ""
        codes = ", ".join(rule.codes) or "no finding"
        screen.print(f"{rule.name}  [{codes}]\n    {first}", markup=False)
    return ExitCode.OK
