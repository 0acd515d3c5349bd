"""What a repository says of the torch that it runs with, where the rewritten code needs a newer one.

Requirement files are read as text, by their lines: `torch==2.1.0`, `"torch>=2.0,<2.5"`, `pytorch=2.2` of
conda, `torch = "^2.1"` of Poetry. What each operator lets in: PEP 440, and the manuals of conda and Poetry.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from codemods.model import Finding, Place, Span

CODE = "FM124"
_FILES = (
    *("requirements*.txt", "requirements/*.txt", "pyproject.toml", "setup.py", "setup.cfg", "Pipfile"),
    *("environment*.y*ml", "conda*.y*ml"),
)
_ONE = r"(?:(?:===?|[<>~!]=|[<>^~])\s*|(?<=\w)=)v?\d[\w.*+]*"
_PIN = re.compile(
    r"(?:^|[\"']|\s)(?:[\w-]+::)?(?P<all>(?:torch|pytorch)(?:\[[\w,-]*\])?\s*(?:=\s*)??[\"'(]?"
    rf"\s*(?P<told>{_ONE}(?:\s*,\s*{_ONE})*|(?<=[\"'])\d[\w.*+]*))"
)
_TERM = re.compile(r"(?P<operator>[=<>!~^]*)\s*v?(?P<version>\d[\w.*+]*)")
Version: TypeAlias = "tuple[int, ...]"


def pins(target: Path, changed: Iterable[str], needed: Version) -> Iterator[Finding]:
    """Notes on the requirements beside changed files that do not ask for a torch as new as needed: one for
    each file, at the first such line.

    Args:
        changed: relative to the target, forward slashes.
        needed: major and minor version.
    """
    folders = {parent for path in changed for parent in PurePosixPath(path).parents}
    found = {path for folder in folders for name in _FILES for path in (target / folder).glob(name)}
    for path in sorted(found):
        try:
            text = path.read_bytes().decode("utf-8", "replace")
        except OSError:
            continue
        note = _note(path.relative_to(target).as_posix(), text, needed)
        if note is not None:
            yield note


def _note(path: str, text: str, needed: Version) -> Finding | None:
    start, wanted = 0, ".".join(map(str, needed))
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        for pin in _PIN.finditer(line.split("#")[0]):
            why = _lacks(pin["told"], needed, wanted)
            if why:
                span = Span(start + pin.start("all"), start + pin.end("all"))
                written = pin["all"].replace('"', "").replace("'", "")
                place = Place(path, number, pin.start("all") + 1, span)
                remedy = f"ask for torch {wanted} or later"
                return Finding(CODE, place, f"`{written}` {why}", remedy, is_note=True)
        start += len(line)
    return None


def _lacks(told: str, needed: Version, wanted: str) -> str:
    """What is wrong with a specifier; nothing where it only lets in what the rewritten code runs with."""
    terms = [
        ("=" if term["version"].endswith("*") else term["operator"], _version(term["version"]))
        for term in _TERM.finditer(told)
    ]
    if any(_keeps_out(operator, version, needed) for operator, version in terms):
        return f"keeps out torch {wanted}, which the rewritten code needs"
    floors = [version for operator, version in terms if operator in (">=", ">", "~=", "^", "~")]
    if floors and max(floors)[: len(needed)] < needed:
        return f"lets in torch below {wanted}, with which the rewritten code does not run"
    return ""


def _keeps_out(operator: str, version: Version, needed: Version) -> bool:
    """Whether one term lets in nothing as new as needed."""
    match operator:
        case "<":
            return version <= (*needed, *((0,) * (len(version) - len(needed))))
        case "=" | "~":  # a prefix: conda's `=2`, Poetry's `~2`, `==2.*`
            return version < needed[: len(version)]
        case "" | "==" | "===" | "<=":
            return version[: len(needed)] < needed
        case "~=" if len(version) > 2:
            return version[: len(needed)] < needed
        case "~=" | "^":
            return version[0] < needed[0]
    return False


def _version(text: str) -> Version:
    """`(2, 1, 0)` of `2.1.0`, `2.1.0+cu118` and `2.1.0.dev`; `(2, 1)` of `2.1.*`."""
    numbers = []
    for part in re.split(r"[.+]", text):
        number = re.match(r"\d+", part)
        if number is None:
            break
        numbers.append(int(number[0]))
    return tuple(numbers)
