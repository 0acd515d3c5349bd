"""A change as a unified diff that `git apply` takes."""

from __future__ import annotations

import difflib

from codemods.model import FileChange


def unified(change: FileChange) -> str:
    """The diff of one file, with git's headers; a missing newline at the end is marked as git marks it.

    Line endings are part of the lines, so CRLF files stay CRLF.
    """
    before = _lines(change.before or b"")
    after = _lines(change.after)
    header = f"diff --git a/{change.path} b/{change.path}\n"
    if change.before is None:
        header += "new file mode 100644\n"
    old = "/dev/null" if change.before is None else f"a/{change.path}"
    out = [header]
    for line in difflib.unified_diff(before, after, old, f"b/{change.path}", lineterm="\n"):
        out.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
    return "".join(out) if len(out) > 1 else ""


def _lines(data: bytes) -> list[str]:
    """Lines ending in a line feed, as git sees them; bytes that are not UTF-8 survive the round trip."""
    text = data.decode("utf-8", errors="surrogateescape")
    lines = text.split("\n")
    return [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
