"""What a conversion tells whoever watches it. The converter has no screen of its own."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Called from any thread, and often: an implementation must be quick."""

    def phase(self, name: str, total_bytes: int) -> None:
        """A phase begins (`comparing tied`, `writing`, `checking`) and will read so many bytes."""
        ...

    def advance(self, size_bytes: int) -> None:
        """So many more bytes of the phase are done."""
        ...


class Silent:
    """Nobody watches."""

    def phase(self, name: str, total_bytes: int) -> None:
        """See `Progress`."""

    def advance(self, size_bytes: int) -> None:
        """See `Progress`."""
