"""A place of its own in the file system for each arm, so that what it writes by its paths stays there.

`<shadow>/home/me/project` is the copy of `/home/me/project`. The directories above it, and the one that the
user stands in, are there too, and hold links to all that the real ones hold: `../data` is found from the
copy, and `../runs/last.pt` is written into the shadow (`private_files` sees to that in the ranks), not into
the user's directory, where the second arm would find what the first has written.
"""

from __future__ import annotations

import contextlib
import re
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
    for folder in reversed(source.root.parents):
        _link_entries(folder, shadow)
    if not cwd.is_relative_to(source.root):
        for folder in (*reversed(cwd.parents), cwd):
            _link_entries(folder, shadow)
    return linked


def _link_entries(folder: Path, shadow: Path) -> None:
    here = place(shadow, folder)
    if here.is_symlink():  # it was linked as an entry of the directory above
        here.unlink()
    here.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(
        OSError
    ):  # a directory that cannot be listed has nothing to be found by its name
        entries = list(folder.iterdir())
        if len(entries) > _MOST_LINKS:
            return
        for entry in entries:
            link = here / entry.name
            if not shadow.is_relative_to(entry) and not link.is_symlink() and not link.exists():
                link.symlink_to(entry)


def shadowed(word: str, shadow: Path) -> str:
    """An argument of the script with its absolute path, if it is one, in the shadow: `/a`, `--out=/a`."""
    found = _A_PATH.fullmatch(word)
    if found is None:
        return word
    path = Path(found[2])
    first = path.parts[1] if len(path.parts) > 1 else ""
    if first in _NEVER or not Path("/", first).is_dir() or not (shadow / first).exists():
        return word
    return f"{found[1] or ''}{shadow}{found[2]}"
