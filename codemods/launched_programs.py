"""What goes wrong in programs whose FSDP comes from a launch script or a settings file alone.

Once those settings are FSDP2's, models that Accelerate prepares and trainers train are sharded in place. The
rules look through such programs as if each had asked for FSDP itself, and what they find because of that is
told, never changed: a program may be launched without FSDP just as well.

Source: `accelerate/accelerator.py` (`prepare`, `get_state_dict`), `transformers/trainer.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from codemods.analysis.collect import Reader, launched
from codemods.model import Finding, Safety
from codemods.plain_tests import is_test_path
from codemods.project import Project

_PREPARES = (rb"\baccelerat", rb"\.prepare(?:_model|_optimizer)?\(")
_TRAINS = (rb"\b(?:transformers|trl)\b", rb"Trainer\(", rb"\.train\(")
_LOST = frozenset({"FM402", "FM403"})
"""Codes about the state dicts of models: what is saved is lost where nobody looks."""
_ASKED = _LOST | {
    *("FM301", "FM302", "FM303", "FM307", "FM409", "FM510", "FM514", "FM515", "FM520", "FM523", "FM624")
}
"""Codes about what a program does with a model or an optimizer; others are about FSDP1's own names, or need
the arguments of a wrap."""
_WHEN = " (where the settings choose FSDP)"
_REMEDY = "use `accelerator.get_state_dict(model)`, called on every rank"


def may_be_launched(text: bytes) -> bool:
    """Whether a file may be a program of Accelerate or of a trainer, by its words."""
    return _stand_in_order(text, _PREPARES) or _stand_in_order(text, _TRAINS)


def _stand_in_order(text: bytes, patterns: Iterable[bytes]) -> bool:
    """Whether each pattern stands somewhere behind the one before.

    One pattern for all of them would read to the end from every place of the first.
    """
    end = 0
    for pattern in patterns:
        found = re.compile(pattern).search(text, end)
        if found is None:
            return False
        end = found.end()
    return True


def in_launched_programs(
    project: Project, reader: Reader, paths: Iterable[str], said: Iterable[Finding]
) -> Iterator[Finding]:
    """What the rules find once more where models are sharded by settings away from the programs.

    Args:
        paths: of files that may be such programs.
        said: what is known; a line that another finding of the same code speaks of is left out.
    """
    from codemods.rule import all_rules

    programs = [path for path in paths if not is_test_path(path)]
    if not programs:
        return
    other = launched(project, reader, programs)
    if other is None:
        return
    known = {(one.place.path, one.place.line, one.code) for one in said}
    for rule in all_rules():
        if rule.check is None or not _ASKED & rule.codes.keys():
            continue
        for one in rule.check(other):
            place = one.place
            is_asked = one.code in _ASKED and not is_test_path(place.path)
            if is_asked and (place.path, place.line, one.code) not in known:
                yield _told(one)


def _told(found: Finding) -> Finding:
    """A finding that changes nothing; only what may be lost in silence is work that is left."""
    is_lost = found.code in _LOST and not found.is_note
    return replace(
        found,
        message=found.message + _WHEN,
        remedy=_REMEDY if is_lost else found.remedy,
        safety=Safety.MANUAL,
        edits=(),
        needs=frozenset(),
        shares=frozenset(),
        is_note=not is_lost,
    )
