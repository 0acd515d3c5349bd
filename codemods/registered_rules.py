"""The rules that are registered, each by its own file when it is imported."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

from codemods.analysis.shelf import TextTest
from codemods.model import Finding
from codemods.project import Project


@dataclass(frozen=True, slots=True)
class Rule:
    """A registered rule.

    Attributes:
        name: what `explain` knows it by: the FSDP1 name it is about.
        codes: code -> one line saying what the finding means.
        check: yields the findings; None for keyword rules, which the wrap call asks.
        manual: the docstring.
        order: rules with lower numbers have the first word where edits conflict.
        where: text -> pattern or test of files that the rule has to see, though no sharded model may get
            there: those with such a text that match its pattern. Files that name FSDP, and those that a
            model gets to, are always there.
        needs_wraps: those files are of no interest to it where nothing is wrapped.
    """

    name: str
    codes: Mapping[str, str]
    check: Callable[[Project], Iterable[Finding]] | None
    manual: str
    order: int = 50
    where: Mapping[bytes, TextTest] = field(default_factory=dict)
    needs_wraps: bool = False

    @property
    def first_sentence(self) -> str:
        """What the rule does, on one line; empty where it has no manual."""
        paragraph = " ".join(inspect.cleandoc(self.manual).split("\n\n")[0].split())
        return re.split(r"(?<=[.!?]) (?=\W*[A-Z])", paragraph, maxsplit=1)[0]


_registry: dict[str, Rule] = {}


def register(found: Rule) -> None:
    """Add a rule; the rooms' own decorators end here."""
    _registry[found.name] = found


def rule(
    name: str,
    codes: Mapping[str, str],
    *,
    order: int = 50,
    where: Mapping[bytes, TextTest] | None = None,
    needs_wraps: bool = False,
) -> Callable[[Callable[[Project], Iterator[Finding]]], Callable[[Project], Iterator[Finding]]]:
    """Register a rule function; see `codemods.rule`."""

    def decorate(check: Callable[[Project], Iterator[Finding]]) -> Callable[[Project], Iterator[Finding]]:
        register(Rule(name, dict(codes), check, check.__doc__ or "", order, where or {}, needs_wraps))
        return check

    return decorate


def all_rules() -> list[Rule]:
    """Every rule, in order of precedence."""
    _import_rules()
    return sorted(_registry.values(), key=lambda r: (r.order, r.name))


@cache
def _import_rules() -> None:
    """Every module under `codemods.rules` registers its rule when it is imported."""
    import codemods.rules as room

    for info in pkgutil.walk_packages(room.__path__, room.__name__ + "."):
        importlib.import_module(info.name)
