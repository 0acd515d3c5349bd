"""The door for rules about configuration files: how they register and how they say what they found.

A rule's function is given a `ConfigFile` and what the project says about it, and yields findings with edits,
as the rules about Python do. Its docstring is its manual page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from codemods.configuration.tree import ConfigFile
from codemods.model import Edit, Finding, Safety, Span
from codemods.registered_rules import Rule, register


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What else is known.

    Attributes:
        named_as_trainer: JSON files that a call or command names as `fsdp_config` of a Transformers trainer.
    """

    named_as_trainer: frozenset[str] = field(default_factory=frozenset)


Check = Callable[[ConfigFile, Surroundings], Iterator[Finding]]
_checks: list[Check] = []


def config_rule(name: str, codes: Mapping[str, str]) -> Callable[[Check], Check]:
    """Register a rule about configuration files; it stands beside the others in `rules` and `explain`."""

    def decorate(check: Check) -> Check:
        register(Rule(name, dict(codes), None, check.__doc__ or ""))
        if check not in _checks:
            _checks.append(check)
        return check

    return decorate


def config_checks() -> list[Check]:
    """Every rule about configuration files."""
    import codemods.rule

    codemods.rule.all_rules()
    return sorted(_checks, key=lambda check: check.__module__)


def found_at(
    file: ConfigFile,
    span: Span,
    code: str,
    message: str,
    *,
    remedy: str = "",
    safety: Safety = Safety.MANUAL,
    edits: Iterable[Edit] = (),
    is_note: bool = False,
) -> Finding:
    """A finding at a span of a configuration file."""
    return Finding(code, file.place(span), message, remedy, safety, tuple(edits), is_note=is_note)
