"""What the rules find in a project, asked by one process or by several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from codemods.dual_stack.elsewhere import fsdp1_branches
from codemods.editing.helper_places import is_written
from codemods.model import Finding, Span
from codemods.processes import mapped
from codemods.project import Project

if TYPE_CHECKING:
    from codemods.rule import Rule


def find_all(
    project: Project, jobs: int = 1, skipped: Mapping[str, str] = MappingProxyType({})
) -> list[Finding]:
    """What every rule finds, in the rules' order of precedence.

    The helper module of an earlier run is FSDP2 code; what its functions take may still be either kind.

    Args:
        jobs: processes that share the rules. Those of a hundred codes go to one: they ask much the same, and
            answers are remembered.
        skipped: files that could not be parsed, with those that questions lead to.
    """
    from codemods.rule import all_rules

    rules = [rule for rule in all_rules() if rule.check is not None]
    families: dict[str, list[Rule]] = {}
    for rule in rules:
        families.setdefault(min(rule.codes)[:3] if jobs > 1 else "", []).append(rule)
    largest_first = sorted(families.values(), key=len, reverse=True)
    asked = mapped(lambda f: (_by_rule(project, f), {*project.modules, *skipped}), largest_first, jobs)
    found: dict[str, list[Finding]] = {}
    for part, _ in asked:
        found.update(part)
    # What questions have led other processes to is read here too.
    project.links.shelf.load(sorted({path for _, paths in asked for path in paths} - project.modules.keys()))
    ours = {path for path, module in project.modules.items() if is_written(module.tree)}
    each = (finding for rule in rules for finding in found[rule.name])
    staying = fsdp1_branches(project)
    return list(
        dict.fromkeys(
            finding
            for finding in each
            if finding.place.path not in ours and (finding.is_note or not _stays(finding, staying))
        )
    )


def _stays(finding: Finding, staying: Mapping[str, Iterable[Span]]) -> bool:
    """Whether a finding is about a branch for FSDP1's models that stays."""
    return any(span.holds(finding.place.span) for span in staying.get(finding.place.path, ()))


def _by_rule(project: Project, rules: Iterable[Rule]) -> dict[str, list[Finding]]:
    return {rule.name: list(rule.check(project)) for rule in rules if rule.check is not None}
