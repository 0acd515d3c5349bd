"""Where findings stand in the files as they are: in the cells of notebooks, and before `--drop-fsdp1` cut."""

from __future__ import annotations

from dataclasses import replace

from codemods.editing.notebooks import Notebook
from codemods.model import Outcome, Place, Reported, Span, Suppression, WrapReport
from codemods.project import Project


def in_original(project: Project, item: Reported) -> Reported:
    """A finding about shortened text, at the line where that stands in the file as it is."""
    if project.dropped is None:
        return item
    place = item.finding.place
    place = project.dropped.original_place(place, project.modules.get(place.path))
    return replace(item, finding=replace(item.finding, place=place))


def site_in_original(project: Project, site: WrapReport) -> WrapReport:
    """The same for a wrap call."""
    if project.dropped is None:
        return site
    return replace(site, line=project.dropped.original_place(Place(site.path, site.line, 1, Span(0, 0))).line)


def comment_in_original(project: Project, found: Suppression) -> Suppression:
    """The same for a suppression comment and what it suppresses."""
    if project.dropped is None:
        return found

    def line(number: int) -> int:
        assert project.dropped is not None
        return project.dropped.original_place(Place(found.path, number, 1, Span(0, 0))).line

    places = tuple((code, line(number)) for code, number in found.findings)
    return replace(found, line=line(found.line), findings=places)


def dropped(project: Project, left: frozenset[str]) -> list[Reported]:
    """What `--drop-fsdp1` did; not done in the files that are left as they are."""
    found = project.dropped.found if project.dropped is not None else []
    return [
        Reported(finding, Outcome.TODO, "the file was left as it is")
        if finding.place.path in left
        else Reported(finding, Outcome.DONE)
        for finding in dict.fromkeys(found)
    ]


def cell(project: Project, path: str, line: int) -> tuple[int, str]:
    """The line that a person sees, and where that is in a notebook."""
    source = project.modules[path].source if path in project.modules else None
    if not isinstance(source, Notebook):
        return line, ""
    line, cell, inside = source.locate(line)
    return line, f"cell {cell}, line {inside}"


def comment_in_cell(project: Project, found: Suppression) -> Suppression:
    """A suppression comment of a notebook, and what it suppresses, at the lines of the notebook's file."""
    places = tuple((code, cell(project, found.path, number)[0]) for code, number in found.findings)
    return replace(found, line=cell(project, found.path, found.line)[0], findings=places)


def in_cell(project: Project, item: Reported) -> Reported:
    """A finding at the line of the notebook's file, with its cell."""
    place = item.finding.place
    line, where = cell(project, place.path, place.line)
    if not where:
        return item
    detail = f"{where}; {item.detail}" if item.detail else where
    return replace(item, finding=replace(item.finding, place=replace(place, line=line)), detail=detail)
