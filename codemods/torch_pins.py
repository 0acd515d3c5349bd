"""What a repository says of the torch that it runs with, where the rewritten code needs a newer one.

Requirement files are read as text, by their lines: `torch==2.1.0`, `"torch>=2.0,<2.5"`, `pytorch=2.2` of
conda, `torch = "^2.1"` and `torch = {version = "^2.1"}` of Poetry, `torch @ https://.../torch-2.1.0-cp310.whl`,
the columns of `conda list`. What each operator lets in: PEP 440, and the manuals of conda and Poetry. A line
that asks for a torch in another way is said to be unread.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from codemods.model import Finding, Place, Span

CODE = "FM124"
_FILES = (
    *("*requirements*.txt", "*requirements*.in", "requirements/*.txt", "requirements/*.in"),
    *("constraints*.txt", "pyproject.toml", "setup.py", "setup.cfg", "Pipfile", "env*.y*ml", "conda*.y*ml"),
)
_ONE = r"(?:(?:===?|[<>~!]=|[<>^~])\s*|(?<=\w)=)v?\d[\w.*+]*"
_NAME = r"(?:torch|pytorch)(?:\[[\w,-]*\])?"
_TABLE = r"\[?\s*\{[^}]*?\bversion\s*=\s*"
_START = r"(?:^|[\"']|\s)(?:[\w-]+::)?"
_FORMS = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        rf"{_START}(?P<all>{_NAME}\s*(?:=\s*(?:{_TABLE})?)??[\"'(]?\s*"
        rf"(?P<told>{_ONE}(?:\s*,\s*{_ONE})*|(?<=[\"'])\d[\w.*+]*))",
        rf"{_START}(?P<all>(?:{_NAME}\s*@\s*)?[\w.+-]+:\S*/(?:py)?torch-(?P<told>\d[\w.]*)\S*)",
        r"^\s*(?:-\s+)?[\"']?(?:[\w-]+::)?(?-i:(?P<all>(?:py)?torch\s+(?P<told>\d[\w.*+]*)))(?=\s|$)",
        rf"{_START}(?P<all>{_NAME}\s*(?:(?:===?|[<>~]=|[<>@])|=\s*\[?\s*\{{[^}}]*?\b(?:git|url|path|file)\s*=)"
        r"\s*[^\s,;]*)",
    )
)
"""A requirement, the name of a file, columns, and what is not read: `all` is shown, `told` says which."""
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
        name = path.relative_to(target).as_posix()
        try:
            data = path.read_bytes()
        except OSError as error:
            place = Place(name, 1, 1, Span(0, 0))
            yield _unread(place, f"the file cannot be read ({error.strerror})", ".".join(map(str, needed)))
            continue
        is_wide = data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # `pip freeze > file` in PowerShell
        note = _note(name, data.decode("utf-16" if is_wide else "utf-8-sig", "replace"), needed)
        if note is not None:
            yield note


def _note(path: str, text: str, needed: Version) -> Finding | None:
    """Of the first line that asks for a torch that will not do, or else of the first that is not read."""
    start, wanted = 0, ".".join(map(str, needed))
    unread = None
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        for pin in _pins(line.split("#")[0]):
            begin, end = pin.span("all")
            place = Place(path, number, begin + 1, Span(start + begin, start + end))
            written = " ".join(pin["all"].replace('"', "").replace("'", "").split())
            told = pin.groupdict().get("told")
            if told is None:
                unread = unread or _unread(place, f"what `{written}` lets in is not read", wanted)
            elif why := _lacks(told, needed, wanted):
                remedy = f"ask for torch {wanted} or later"
                return Finding(CODE, place, f"`{written}` {why}", remedy, is_note=True)
        start += len(line)
    return unread


def _pins(line: str) -> list[re.Match[str]]:
    """What asks for torch, in the first form in which something does."""
    found = (list(form.finditer(line)) for form in _FORMS)
    return next(filter(None, found), [])


def _unread(place: Place, message: str, wanted: str) -> Finding:
    return Finding(CODE, place, message, f"see that it asks for torch {wanted} or later", is_note=True)


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
