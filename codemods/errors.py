"""Errors of the code rewriter.

CodemodError
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


class CodemodError(Exception):
    """A rewrite that cannot go on; nothing was written.

    Args:
        message: what went wrong, and where.
        hint: what to do next.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def too_entangled(paths: Iterable[str]) -> CodemodError:
    """What holds a sharded model cannot be told in a time that anybody would wait.

    Args:
        paths: the files that hang together, relative to the target.
    """
    parts = Counter("/".join(path.split("/")[:-1][:2]) or "." for path in paths)
    most = ", ".join(f"{folder} ({number:,})" for folder, number in parts.most_common(5))
    return CodemodError(
        f"{sum(parts.values()):,} files import each other so closely that sharded models cannot be followed "
        f"through all of them; nothing was written. Most of them are in: {most}",
        hint="Leave out what does not train with FSDP1, such as vendored libraries: --exclude PATTERN, "
        "or `exclude` in [tool.fsdp-migrate].",
    )
