"""What of an output has reached a store: notes there, so that a run after a lost one goes on with it.

A store appends to no file, so there is a note per file that arrived whole: its name, and the lines that the
journals of written tensors got since the note before. Notes count only for the same conversion
(`journal.fingerprint`). What they say is read back from the store before it is trusted; where ranks send
together only the sizes there are compared, as with what they send themselves.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkpoint_convert import journal
from checkpoint_convert.writers.layout import Layout

NOTE_NAME = ".fsdp-migrate-sent-"
"""Beside the marker of an unfinished output, with a number behind it."""


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
    """The notes of one conversion at its URL.

    Args:
        system, root: fsspec's file system, and the output's path there.
        fingerprint: what tells the conversion from others; where nothing does, nothing is noted.

    Attributes:
        stands: whether a run after this one could go on with what is there.
    """

    def __init__(self, system: Any, root: str, fingerprint: str) -> None:
        self._system = system
        self._root = root
        self._fingerprint = fingerprint
        self._lines = journal.NewLines()
        self._number = 0
        self.stands = False

    def note(self, name: str, partial: Path) -> None:
        """Take down that a file of the output was sent whole.

        Args:
            partial: the output here, which holds the journals.
        """
        if self._fingerprint:
            head = json.dumps({"conversion": self._fingerprint, "sent": name}).encode()
            at = f"{self._root}/{NOTE_NAME}{self._number:06}"
            self._system.pipe_file(at, head + b"\n" + self._lines.take(partial))
            self._number += 1
            self.stands = True

    def earlier(self, layout: Layout, place: Callable[[str], str]) -> Sent | None:
        """What an earlier run sent of this conversion, if all of it is still there.

        Args:
            place: where a file of the output is on the remote file system.
        """
        self._system.invalidate_cache()
        notes = self._notes() if self._fingerprint else []
        sent = _read([self._system.cat_file(note) for note in notes], self._fingerprint, layout)
        for name, size in sent.sizes.items() if sent is not None else ():
            if not self._system.exists(place(name)) or self._system.info(place(name))["size"] != size:
                return None
        if sent is not None:
            self._number = int(notes[-1].rpartition("-")[2]) + 1
            self.stands = True
        return sent

    def _notes(self) -> list[str]:
        found: list[str] = []
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            found = self._system.ls(self._root, detail=False)
        names = (str(path).rstrip("/") for path in found)
        return sorted(
            path
            for path in names
            if path.rpartition("/")[2].startswith(NOTE_NAME) and path.rpartition("-")[2].isdecimal()
        )

    def remove(self) -> None:
        """All is sent."""
        self._system.invalidate_cache()
        for path in self._notes():
            self._system.rm_file(path)


def _read(notes: list[bytes], fingerprint: str, layout: Layout) -> Sent | None:
    """What notes say; None where one is of another conversion, or damaged."""
    names, finished = set(), {}
    for note in notes:
        head, _, rows = note.partition(b"\n")
        try:
            found = json.loads(head)
            if found["conversion"] != fingerprint:
                return None
            names.add(str(found["sent"]))
        except (ValueError, KeyError, TypeError):
            return None
        finished.update(journal.parsed(rows, len(layout.tensors)))
    sizes = {file.name: file.size_bytes for file in layout.files if file.name in names}
    if not sizes:
        return None
    sent = [file.name in sizes for file in layout.files]
    whole = {
        number: one
        for number, one in finished.items()
        if all(sent[span.file] for span in layout.spans(number))
    }
    return Sent(sizes, whole)
