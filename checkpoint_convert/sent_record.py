"""What of an output has reached a store: a record there, so that a run after a lost one goes on with it.

It holds the names of the files that were sent whole, and the journal of the tensors written by then. It
counts only for the same conversion (`journal.fingerprint`), whose source is a local one: stand-ins of remote
files are new in every run. What it says is read back from the store before it is trusted.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

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


def written(fingerprint: str, names: Collection[str], partial: Path) -> bytes:
    """The record of a run.

    Args:
        names: of files in the output that were sent whole.
        partial: the unfinished output here, which holds the journal.
    """
    head = json.dumps({"conversion": fingerprint, "sent": sorted(names)})
    return head.encode() + b"\n" + journal.text(partial)


def read(data: bytes, fingerprint: str, layout: Layout) -> Sent | None:
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
