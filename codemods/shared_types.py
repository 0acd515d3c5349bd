"""Configuration types change together with what takes their values, or not at all. Pure.

`ShardingStrategy` in a dataclass, a wrap call that takes it from there: were one of them to become the helper
module's and the other to stay torch's, the program would fail, or choose another strategy without a word. So
findings carry in `shares` what they have in common: a type in files linked by imports, the call they stand
in, or the settings file they name (`codemods.configuration.named`). Where one of them is not done (a comment
ignores it, its file may not be changed, its edits clash), the others are left as well.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from codemods.analysis.module import Module
from codemods.model import Finding, Outcome, Reported
from codemods.project import Project

WRAP_TYPES = {
    "sharding_strategy": "ShardingStrategy",
    "mixed_precision": "MixedPrecision",
    "backward_prefetch": "BackwardPrefetch",
}
"""Keyword of the wrap call -> the type of its values, of those that torch and the helper module cannot take
from each other."""
STATE_DICT_KIND = "StateDictType"


def shared_type(project: Project, module: Module, name: str) -> str:
    """What every place that names a type shares, in the files that belong together."""
    return f"{name}@{project.group(module.path)}"


def any_shared_type(name: str) -> frozenset[str]:
    """What a place that names a type shares with whoever takes its values, in whatever files."""
    return frozenset({f"{name}@"}) if name in WRAP_TYPES.values() else frozenset()


def of_known_files(shares: frozenset[str], known: Iterable[str]) -> frozenset[str]:
    """What is shared with those in whatever files, for each group of files that shares something."""
    whole = tuple(key for key in shares if key.endswith("@"))
    return shares | {key for key in known if whole and key.startswith(whole)}


def shared_call(module: Module, call: ast.Call) -> str:
    """What the places within one call share."""
    return f"{module.path}:{module.span(call).start}"


def taken_types(project: Project, module: Module, call: ast.Call, keywords: Iterable[str]) -> frozenset[str]:
    """The types whose values a wrap call takes from elsewhere; `**` stands for any."""
    names = set(keywords)
    visible = [ast.unparse(argument.value) for argument in call.keywords]
    found = [
        name
        for keyword, name in WRAP_TYPES.items()
        if (keyword in names or "**" in names) and not any(name in text for text in visible)
    ]
    return frozenset(shared_type(project, module, name) for name in found)


def left_together(
    reported: Iterable[Reported], absent: Iterable[Finding], held: Mapping[Finding, str]
) -> dict[Finding, str]:
    """Findings that must be left because of others, and why.

    Args:
        absent: findings in files that may not be changed.
        held: those known already.
    """
    reported = list(reported)
    blockers: dict[str, str] = {}
    for finding in absent:
        for key in () if finding.is_note else finding.shares:
            blockers.setdefault(
                key, f"{finding.place.path}, which takes part, may not be changed in this run"
            )
    for item in reported:
        place = item.finding.place
        if item.outcome is not Outcome.DONE:
            for key in item.finding.shares:
                blockers.setdefault(key, f"{item.finding.code} in {place.path}:{place.line} is left")
    found = dict(held)
    for item in reported:
        if item.outcome is Outcome.DONE and item.finding.edits:
            told = next((blockers[key] for key in sorted(item.finding.shares) if key in blockers), None)
            if told is not None:
                found[item.finding] = f"changes only together with what shares its values: {told}"
    return found
