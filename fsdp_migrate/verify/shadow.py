"""A place of its own in the file system for each arm, so that what it writes by its paths stays there.

`<shadow>/home/me/project` is the copy of `/home/me/project`. The directories above it, and the one that the
user stands in, are there too, and hold links to all that the real ones hold: `../data` is found from the
copy, and `../runs/last.pt` is written into the shadow (`private_files` sees to that in the ranks), not into
the user's directory, where the second arm would find what the first has written.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from fsdp_migrate.verify.baseline import Source, build_tree

_MOST_LINKS = 5000
"""Of a directory above the project with more entries none is linked."""
_A_PATH = re.compile(r"([^/]*=)?(/[^/].*)")
_NEVER = frozenset({"dev", "proc", "sys", "run"})


def place(shadow: Path, real: Path) -> Path:
    """Where an absolute path is in a shadow."""
    return shadow / real.relative_to(real.anchor)


def build(source: Source, shadow: Path, cwd: Path) -> list[str]:
    """Copy a project into its place, and link what is around it and around `cwd`.

    Returns:
        Relative paths of large files that were linked instead of copied.
    """
    linked = build_tree(source, place(shadow, source.root))
    for folder in (*reversed(source.root.parents), *reversed(shadow.parents[1:])):
        _link_entries(folder, shadow)
    if not cwd.is_relative_to(source.root):
        for folder in reversed(cwd.parents):
            _link_entries(folder, shadow)
        _link_entries(cwd, shadow, sys.maxsize)
    return linked


def _link_entries(folder: Path, shadow: Path, most: int = _MOST_LINKS) -> None:
    here = place(shadow, folder)
    if here.is_symlink():  # it was linked as an entry of the directory above
        here.unlink()
    here.mkdir(parents=True, exist_ok=True)
    try:
        entries = list(folder.iterdir())
    except OSError:  # what cannot be listed is not found by its name either
        return
    for entry in entries if len(entries) <= most else ():
        link = here / entry.name
        # What leads to the shadow itself gets a directory of its own, as what leads to the project has.
        if not shadow.is_relative_to(entry) and not link.is_symlink() and not link.exists():
            link.symlink_to(entry)


def shadowed(word: str, shadow: Path) -> str:
    """An argument of the script with its absolute path, if it is one, in the shadow: `/a`, `--out=/a`."""
    found = _A_PATH.fullmatch(word)
    if found is None:
        return word
    path = Path(found[2])
    known = next(each for each in (path, *path.parents) if os.path.exists(each))  # noqa: PTH110 (never raises)
    if len(known.parts) < 2 or known.parts[1] in _NEVER or not place(shadow, known).exists():
        return word
    return f"{found[1] or ''}{shadow}{found[2]}"
