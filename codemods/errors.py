"""Errors of the code rewriter.

CodemodError
"""


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
