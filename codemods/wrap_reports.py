"""What became of each wrap call, for the report and the manifest."""

from __future__ import annotations

from codemods.editing.apply import replaces
from codemods.model import Outcome, Reported, WrapReport
from codemods.project import Project
from codemods.shown_places import shown_place

DROPPED_BRANCH = "FM120"
WRAP_FORMS = {"FM101": "inline", "FM102": "helper", "FM107": "helper"}
"""Codes of translated wrap calls, and what the report calls them."""


def wrap_reports(project: Project, reported: list[Reported]) -> tuple[WrapReport, ...]:
    """Every wrap call of the project, at the lines of the files as they are."""
    found = []
    done = [r.finding for r in reported if r.outcome is Outcome.DONE and r.finding.code in WRAP_FORMS]
    for site in project.wraps:
        place = site.module.place(site.node)
        name = site.module.span(site.function)
        owner = next(
            (
                f
                for f in done
                for e in f.edits
                if e.path == place.path and e.span.holds(name) and replaces(e, name)
            ),
            None,
        )
        line = shown_place(project, place)[0].line
        form = WRAP_FORMS[owner.code] if owner is not None else "left"
        found.append(WrapReport(place.path, line, form, owner.detail if owner is not None else ""))
    return tuple(found)
