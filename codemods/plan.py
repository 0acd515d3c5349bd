"""From findings to a rewrite: what is applied, what conflicts, what is left to a person. Pure: writes
nothing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from codemods.analysis.collect import Reader, read_project
from codemods.analysis.deep_expressions import deep_expressions
from codemods.analysis.library_calls import surroundings
from codemods.configuration.plan import ConfigRewrite, plan_configuration
from codemods.editing.changes import file_changes
from codemods.find import find_all
from codemods.launched_programs import in_launched_programs, may_be_launched
from codemods.model import (
    WHOLE_FILE,
    FileChange,
    Finding,
    Options,
    Outcome,
    Place,
    Reported,
    Rewrite,
    Span,
    Suppression,
)
from codemods.outcomes import decided_together
from codemods.plain_tests import is_test_path
from codemods.processes import processors
from codemods.project import Project
from codemods.shown_places import dropped, shown
from codemods.sources import is_configuration
from codemods.suppressions import check_suppression, suppressions_in
from codemods.torch_pins import CODE as TORCH_PINS
from codemods.torch_pins import pins
from codemods.trainer_models import asks_trainer, changes_settings, trainer_models
from codemods.whole import only_whole
from codemods.wrap_reports import DROPPED_BRANCH, wrap_reports

_MANY_MODULES = 100
"""Modules read from which on a second process is worth its start."""
_MANY_FILES = 1000
"""The same of files that are searched."""
_LEFT = "the file was left as it is"


@deep_expressions()
def plan_rewrite(
    target: Path,
    files: list[str],
    options: Options,
    *,
    only: frozenset[str] | None = None,
    jobs: int | None = 1,
) -> Rewrite:
    """Everything a rewrite of these files comes to.

    Args:
        target: the directory that paths are relative to.
        files: Python files, notebooks and configuration files, relative to it, forward slashes.
        only: the files that may be changed; all if None. The others are read to understand these.
        jobs: processes that share the work; None: one for each processor where there is enough to do.
    """
    reading = (processors() if len(files) >= _MANY_FILES else 1) if jobs is None else jobs
    project, skipped, reader = _project(target, files, options, only, reading)
    files, configs = split(files)
    read = len(project.modules)  # what single questions lead to later is not counted: it may be asked twice
    if jobs is None:
        jobs = processors() if len(project.modules) >= _MANY_MODULES else 1
    every = find_all(project, jobs, skipped)
    settings = plan_configuration(target, configs, options, surroundings(project), every, only=only)
    findings, absent, elsewhere = _shared_out(project, reader, files, every, settings, only)

    def decided(held: dict[Finding, str]) -> list[Reported]:
        return decided_together(project, findings, only, absent, held, settings.decide)

    reported = decided({})
    suppressed = suppressions_in(project, reported, only)
    reported, changes = _all_changed(project, reported, decided, target, jobs)
    sites = list(wrap_reports(project, reported))
    reported += [r for found, place in suppressed for r in check_suppression(found, place, options)]
    missing = _missing(settings.missing, [*reported, *settings.reported])
    reported = [shown(project, item) for item in reported] + dropped(project, _left_whole(reported))
    changes = sorted([*changes, *settings.changes], key=lambda change: change.path)
    skipped.update(settings.skipped)
    if only is not None:
        skipped = {path: why for path, why in skipped.items() if path in only}
    reported += settings.reported + [shown(project, item) for item in missing]
    if any(site.form != "left" for site in sites):
        reported += _torch_notes(target, changes, options)
    reported += [_unread(path, why) for path, why in sorted(skipped.items())]
    reported.sort(key=lambda r: (r.finding.place.path, r.finding.place.line, r.finding.code))
    sites = [s for s in sites if only is None or s.path in only]
    return Rewrite(
        tuple(changes),
        tuple(reported),
        tuple(sites),
        len(files),
        read,
        skipped,
        (settings.searched, settings.read),
        _in_order([*(found for found, _ in suppressed), *settings.suppressions]),
        dict(sorted(elsewhere.items())),
    )


def _shared_out(
    project: Project,
    reader: Reader,
    files: list[str],
    every: list[Finding],
    settings: ConfigRewrite,
    only: frozenset[str] | None,
) -> tuple[list[Finding], list[Finding], Counter[str]]:
    """Findings in the files that may be changed; those in others; and how many of these each file has for a
    person, settings left out."""
    mine = [path for path in files if only is None or path in only]
    findings = [f for f in every if only is None or f.place.path in only]
    absent = [f for f in every if only is not None and f.place.path not in only]
    elsewhere = Counter(f.place.path for f in absent if not f.is_note)
    if changes_settings([*every, *(f for _, some in settings.found for f in some)]):
        findings += _of_launched(project, reader, mine, every)
    return findings, [*absent, *settings.absent], elsewhere


def _torch_notes(target: Path, changes: list[FileChange], options: Options) -> list[Reported]:
    """What requirements beside rewritten code say of torch."""
    if not options.wants(TORCH_PINS):
        return []
    written = [change.path for change in changes if not is_configuration(change.path)]
    return [Reported(f, Outcome.NOTE) for f in pins(target, written, options.target_torch)]


def _of_launched(project: Project, reader: Reader, paths: list[str], said: list[Finding]) -> list[Finding]:
    """What is done with models that settings elsewhere shard, in programs most of which never say FSDP."""
    asking = [path for path in paths if asks_trainer(reader.code_of(path)) and not is_test_path(path)]
    modules = [project.modules.get(path) or reader.load(path) for path in asking]
    found = [f for module in modules if module is not None for f in trainer_models(module, said)]
    told = {(one.place.path, one.place.line) for one in found}
    programs = [path for path in paths if may_be_launched(reader.code_of(path))]
    here = frozenset(paths)
    for one in in_launched_programs(project, reader, programs, said):
        if one.place.path in here and (one.place.path, one.place.line) not in told:
            found.append(one)
    return [one for one in found if project.options.wants(one.code)]


def _in_order(found: list[Suppression]) -> tuple[Suppression, ...]:
    return tuple(sorted(found, key=lambda s: (s.path, s.line, s.column)))


def _project(
    target: Path, every: list[str], options: Options, only: frozenset[str] | None, jobs: int
) -> tuple[Project, dict[str, str], Reader]:
    """The project; with `--drop-fsdp1` without FSDP1's branches."""
    files, configs = split(every)
    reader = Reader(target)
    project, skipped = read_project(target, files, options, reader, jobs)
    if not options.drop_fsdp1 or not options.wants(DROPPED_BRANCH):
        return project, skipped, reader
    from codemods.dual_stack.drop import drop_fsdp1

    def reread(texts: dict[str, str]) -> Project:
        nonlocal reader
        reader = reader.with_texts(texts)
        for path in texts:  # whatever led to it may be gone
            reader.load(path)
        return read_project(target, files, options, reader)[0]

    short, project = drop_fsdp1(project, only, reread, lambda: _words(target, configs))
    project.dropped = short
    return project, skipped, reader


def _words(target: Path, files: list[str]) -> frozenset[str]:
    found: set[str] = set()
    for path in files:
        with suppress(OSError):
            found.update(re.findall(r"[A-Za-z_]\w*", (target / path).read_text(errors="replace")))
    return frozenset(found)


def split(files: list[str]) -> tuple[list[str], list[str]]:
    """Files that hold Python, and configuration files."""
    return [f for f in files if not is_configuration(f)], [f for f in files if is_configuration(f)]


def _all_changed(
    project: Project,
    reported: list[Reported],
    decided: Callable[[dict[Finding, str]], list[Reported]],
    target: Path,
    jobs: int,
) -> tuple[list[Reported], list[FileChange]]:
    """The new contents of files; what shares values with a file that is left alone is left as well.

    Args:
        decided: outcomes, given the findings that are left although they could be done, and why.
    """
    reported, changes = _changed(project, reported, target, jobs)
    undone = {r.finding: r.detail for r in reported if r.detail == _LEFT}
    if not any(finding.shares for finding in undone):
        return reported, changes
    said = [r for r in reported if r.finding.code == "FM903"]
    reported, changes = _changed(project, _untouched(decided(undone), said), target, jobs)
    return reported + [r for r in said if r not in reported], changes


def _changed(
    project: Project,
    reported: list[Reported],
    target: Path,
    jobs: int = 1,
    known: frozenset[str] = frozenset(),
) -> tuple[list[Reported], list[FileChange]]:
    """The new contents of files; what they cannot hold is not done, and said."""
    accepted = [r.finding for r in reported if r.outcome is Outcome.DONE]
    kept = [r for r in reported if not r.left_whole]
    changes, broken, dead = file_changes(project, kept, accepted, target, jobs=jobs)
    reported = [_undone(_gone(item, dead), broken) for item in reported]
    reported += [_left_alone(path, why) for path, why in broken.items() if path not in known]
    if not project.options.whole_only or known.issuperset(broken):
        return reported, changes
    # What shares a model with a file that is left alone is left as well.
    return _changed(project, only_whole(project, reported), target, jobs, known.union(broken))


def _missing(notes: list[Finding], reported: list[Reported]) -> list[Reported]:
    """Notes on settings files that are not there, where what names them changes."""
    done = {(r.finding.code, r.finding.place) for r in reported if r.outcome is Outcome.DONE}
    return [Reported(note, Outcome.NOTE) for note in notes if (note.code, note.place) in done]


def _left_whole(reported: list[Reported]) -> frozenset[str]:
    """Files that are left as they are, because their rewritten form would not do."""
    return frozenset(item.finding.place.path for item in reported if item.finding.code == "FM903")


def _undone(item: Reported, broken: dict[str, str]) -> Reported:
    """What was to be done in a file that is left alone is not done."""
    if item.outcome is Outcome.DONE and any(edit.path in broken for edit in item.finding.edits):
        return replace(item, outcome=Outcome.TODO, detail=_LEFT)
    return item


def _gone(item: Reported, dead: Mapping[str, Mapping[str, Span]]) -> Reported:
    """What was done in a function that went says so."""
    place = item.finding.place
    names = [name for name, span in dead.get(place.path, {}).items() if span.holds(place.span)]
    if item.outcome is not Outcome.DONE or not names:
        return item
    return replace(item, detail=f"and goes with `{names[0]}`, which nothing calls any more")


def _untouched(reported: list[Reported], said: list[Reported]) -> list[Reported]:
    """Nothing is written, not even a comment, in files that are said to be left as they are."""
    left = {item.finding.place.path for item in said}
    return [
        replace(item, left_whole=True)
        if item.outcome is Outcome.TODO and item.finding.place.path in left
        else item
        for item in reported
    ]


def _left_alone(path: str, why: str) -> Reported:
    message = f"the file was left as it is: {why}"
    return Reported(Finding("FM903", Place(path, 1, 1, WHOLE_FILE), message), Outcome.TODO)


def _unread(path: str, why: str) -> Reported:
    return Reported(Finding("FM901", Place(path, 1, 1, WHOLE_FILE), f"the file {why}"), Outcome.TODO)
