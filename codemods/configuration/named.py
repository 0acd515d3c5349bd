"""Settings files that a launch line, a configuration or a Python call names: they change together. Pure.

A trainer that is told `hybrid_shard` refuses a file of version 2, and one that is told `True` reads an FSDP1
file as FSDP2's. So what names a file and what changes in it share a key (`Finding.shares`).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path, PurePosixPath

from codemods.model import Finding

_PREFIX = "settings:"
_ANY_FOLDER = "*/"
_UNSEEN = "?"
_PLAIN = re.compile(r"[\w.-][\w./-]*\.(?:json|ya?ml)")
_FILE = re.compile(r"[\w.-]+\.(?:json|ya?ml)\b")


def paths_named(path: str, name: str) -> frozenset[str]:
    """What a name means in a file: a path seen from its folder, and one seen from the target."""
    folder = str(PurePosixPath(path).parent)
    return frozenset({posixpath.normpath(posixpath.join(folder, name)), posixpath.normpath(name)})


def shared_settings(path: str, name: str | None, *texts: str) -> frozenset[str]:
    """What a place that names a settings file shares with that file, and with others that name it.

    Args:
        path: of the file in which it is named.
        name: None where it is made at run time; each file that the first telling text names may be meant, and
            where none does any of which nobody says who names it.
        texts: what stands in the name's place, and around it.
    """
    if name is not None:
        return frozenset(_PREFIX + one for one in paths_named(path, name))
    found = next((names for text in texts if (names := _FILE.findall(text))), ())
    if not found:
        return frozenset({_PREFIX + _UNSEEN})
    return frozenset(_PREFIX + _ANY_FOLDER + one for one in found)


def absent_settings(target: Path, findings: Iterable[Finding]) -> list[Finding]:
    """Notes on places whose settings file is named, but is in no folder that the name can be seen from."""
    notes = []
    for found in findings:
        names = sorted(key.removeprefix(_PREFIX) for key in found.shares if key.startswith(_PREFIX))
        is_plain = names and all(_PLAIN.fullmatch(name) for name in names)
        if not found.edits or not is_plain or any((target / name).exists() for name in names):
            continue
        name = min(names, key=len)
        notes.append(
            Finding(
                found.code,
                found.place,
                f"`{name}` is not here: what it says for FSDP1 would be read as FSDP2's",
                "bring that file to FSDP2's keys together with this place",
                is_note=True,
            )
        )
    return list(dict.fromkeys(notes))


def with_settings(findings: Iterable[Finding], keys: frozenset[str]) -> list[Finding]:
    """Findings, those that are no notes with more that they share."""
    return [f if f.is_note else replace(f, shares=f.shares | keys) for f in findings]


def keys_of_file(path: str, named: frozenset[str], *, is_alone: bool) -> frozenset[str]:
    """What a settings file shares with those that name it.

    Args:
        named: what all those share that name one.
        is_alone: it holds nothing but a trainer's `fsdp_config`, so something has to name it.
    """
    found = named & {_PREFIX + path, _PREFIX + _ANY_FOLDER + PurePosixPath(path).name}
    return found or (named & {_PREFIX + _UNSEEN} if is_alone else frozenset())


def keys_in(findings: Iterable[Finding]) -> frozenset[str]:
    """The settings files that findings speak of."""
    return frozenset(key for found in findings for key in found.shares if key.startswith(_PREFIX))
