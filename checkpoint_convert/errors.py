"""Errors of the checkpoint converter.

CheckpointError             what, where, what to do next
├── UnreadableError         damaged, truncated or hostile bytes; no checkpoint at all
│   └── UnreachableError    a server or its connection failed; the bytes may be as they should
├── AmbiguousFormatError    two equally good answers to "what is this?"
├── IncompleteError         a rank file is missing, or ranks of different runs are mixed
├── LayoutError             names and shapes are not known, or do not fit the bytes
├── UnsupportedError        understood, and not convertible (the message says why)
└── DestinationError        exists already, not writable, no space
"""


class CheckpointError(Exception):
    """A conversion that cannot go on; no complete-looking output was left behind.

    Args:
        message: what went wrong, and where.
        hint: what to do next.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UnreadableError(CheckpointError):
    """Damaged, truncated or hostile bytes, or no checkpoint at all."""


class UnreachableError(UnreadableError):
    """A server or the connection to it failed; the bytes behind it may be as they should."""


class AmbiguousFormatError(CheckpointError):
    """Two equally good answers to "what is this?"."""


class IncompleteError(CheckpointError):
    """A rank file is missing, or files of different runs are mixed."""


class LayoutError(CheckpointError):
    """Parameter names and shapes are not known, or do not fit the bytes."""


class UnsupportedError(CheckpointError):
    """Understood, and not convertible."""


class DestinationError(CheckpointError):
    """The destination exists already, cannot be written, or has no space."""
