"""Where findings stand in the files as they are: in the text of notebooks, and before `--drop-fsdp1` cut.

Rules speak of the text they see. People, editors and code scanning look at the file on the disk: every place,
its span included, is led back there before it is told.
"""

from __future__ import annotations

from dataclasses import replace

from codemods.editing.notebooks import Notebook
from codemods.model import WHOLE_FILE, Outcome, Place, Reported
from codemods.project import Project


def shown_place(project: Project, place: Place) -> tuple[Place, str]:
    """A place in the file as it is, and where that is in a notebook (`cell 3, line 2`)."""
    if project.dropped is not None:
        place = project.dropped.original_place(place)
    source = project.modules[place.path].source if place.path in project.modules else None
    if not isinstance(source, Notebook) or place.span == WHOLE_FILE:
        return place, ""
    span, cell, inside = source.locate(place.span)
    line, column = source.line_and_column(span.start)
    return Place(place.path, line, column, span), f"cell {cell}, line {inside}"


def shown(project: Project, item: Reported) -> Reported:
    """A finding at its place in the file as it is; its detail names a notebook's cell."""
    place, where = shown_place(project, item.finding.place)
    detail = "; ".join(filter(None, (where, item.detail)))
    return replace(item, finding=replace(item.finding, place=place), detail=detail)


def dropped(project: Project, left: frozenset[str]) -> list[Reported]:
    """What `--drop-fsdp1` did, in the files as they are; not done in the files that are left so."""
    found = project.dropped.found if project.dropped is not None else []
    return [
        Reported(finding, Outcome.TODO, "the file was left as it is")
        if finding.place.path in left
        else Reported(finding, Outcome.NOTE if finding.is_note else Outcome.DONE)
        for finding in dict.fromkeys(found)
    ]
