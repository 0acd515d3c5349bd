"""Files of several saves in one place, told apart by a number of their names: a step, an epoch.

Only messages use this: which save is meant, its owner says.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

_DIGITS = re.compile(r"\d+")
_STEP_FIELD = re.compile(
    r"(?<![a-z])(?:step|epoch|ep|e|iter|iteration|it|batch|ba|world_size)s?[_.=-]?$",
    re.IGNORECASE,
)
_SMALLEST_STEP = 10
"""Smaller numbers that nothing calls steps may count ranks or parts."""
_SHOWN = 6


def one_of_several(paths: Sequence[Path]) -> str:
    """What to say where files seem to be of several saves: the files of the last; else nothing."""
    found = by_save(paths)
    if len(found) < 2:
        return ""
    last = found[-1]
    names = " ".join(map(str, last[:_SHOWN])) + (" ..." if len(last) > _SHOWN else "")
    return f" By the numbers in their names these are {len(found)} saves; the last one's: {names}"


def by_save(paths: Sequence[Path]) -> list[list[Path]]:
    """The files of each save, by its number; one list where no number tells saves apart.

    That number is called a step or an epoch; or it is too large and too scattered to count ranks or parts,
    and all saves have the same files. Files without numbers are of no save.
    """
    rows = [(path, found) for path in paths if (found := [*_DIGITS.finditer(str(path))])]
    best: list[list[Path]] = [list(paths)]
    for column in range(min((len(found) for _, found in rows), default=0)):
        saves: dict[int, dict[str, Path]] = {}
        is_named = True
        for path, found in rows:
            before, after = str(path)[: found[column].start()], str(path)[found[column].end() :]
            is_named &= _STEP_FIELD.search(before) is not None
            saves.setdefault(int(found[column].group()), {})[f"{before}*{after}"] = path
        numbers = sorted(saves)
        counted = numbers[0] < _SMALLEST_STEP or numbers[-1] - numbers[0] < len(numbers)
        alike = len({frozenset(files) for files in saves.values()}) == 1
        if is_named or (alike and not counted):
            best = max(best, [list(saves[number].values()) for number in numbers], key=len)
    return best
