"""What of an output has reached a store: a record there, so that a run after a lost one goes on with it.

It holds the names of the files that were sent whole, and the journal of the tensors written by then. It
counts only for the same conversion (`journal.fingerprint`), whose source is a local one: stand-ins of remote
files are new in every run. What it says is read back from the store before it is trusted; where ranks send
together only the sizes there are compared, as with what they send themselves.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkpoint_convert import journal
from checkpoint_convert.writers.layout import Layout

RECORD_NAME = ".fsdp-migrate-sent"
"""Beside the marker of an unfinished output."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What an earlier run sent.

    Attributes:
        sizes: bytes of each file that is there, by its name in the output.
        finished: the tensors that lie in these files alone.
    """

    sizes: dict[str, int]
    finished: dict[int, journal.Finished]


class SentRecord:
    """The record of one conversion at its URL.

    Args:
        system, root: fsspec's file system, and the output's path there.
        fingerprint: what tells the conversion from others; where nothing does, nothing is recorded.
    """

    def __init__(self, system: Any, root: str, fingerprint: str) -> None:
        self._system = system
        self._at = f"{root}/{RECORD_NAME}"
        self._fingerprint = fingerprint

    def write(self, names: Collection[str], partial: Path) -> None:
        """Take down what has been sent.

        Args:
            names: of files in the output that were sent whole.
            partial: the output here, which holds the journal.
        """
        if self._fingerprint:
            head = json.dumps({"conversion": self._fingerprint, "sent": sorted(names)})
            self._system.pipe_file(self._at, head.encode() + b"\n" + journal.text(partial))

    def earlier(self, layout: Layout, place: Callable[[str], str]) -> Sent | None:
        """What an earlier run sent of this conversion, if all of it is still there.

        Args:
            place: where a file of the output is on the remote file system.
        """
        self._system.invalidate_cache()
        if not self._fingerprint or not self._system.exists(self._at):
            return None
        sent = _read(self._system.cat_file(self._at), self._fingerprint, layout)
        for name, size in sent.sizes.items() if sent is not None else ():
            if not self._system.exists(place(name)) or self._system.info(place(name))["size"] != size:
                return None
        return sent

    def remove(self) -> None:
        """All is sent."""
        if self._system.exists(self._at):
            self._system.rm_file(self._at)


def _read(data: bytes, fingerprint: str, layout: Layout) -> Sent | None:
    """What a record says; None where it is of another conversion, or damaged."""
    head, _, rows = data.partition(b"\n")
    try:
        found = json.loads(head)
        names = set(map(str, found["sent"])) if found["conversion"] == fingerprint else set()
    except (ValueError, KeyError, TypeError):
        return None
    sizes = {file.name: file.size_bytes for file in layout.files if file.name in names}
    if not sizes:
        return None
    sent = [file.name in sizes for file in layout.files]
    finished = {
        number: one
        for number, one in journal.parsed(rows, len(layout.tensors)).items()
        if all(sent[span.file] for span in layout.spans(number))
    }
    return Sent(sizes, finished)
