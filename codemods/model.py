"""The words of the rewriter: places, edits as data, findings, and what a rewrite comes to.

Positions are 0-based offsets in characters of a file's decoded text; lines and columns shown to people
count from 1.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TypeAlias


class Safety(enum.IntEnum):
    """How far a translation may be trusted; the order is the order of trust."""

    MANUAL = 0
    """Needs a person: nothing is changed but a TODO at the place."""
    UNSAFE = 1
    """Can change numerics, memory or comments: applied with `--unsafe-fixes` only."""
    SAFE = 2
    """Behaves as before."""


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """`text[start:end]` of one file."""

    start: int
    end: int

    def holds(self, other: Span) -> bool:
        """Whether `other` lies within this span."""
        return self.start <= other.start and other.end <= self.end


WHOLE_FILE = Span(0, 0)
"""Of a place: it is about no text in particular."""


@dataclass(frozen=True, slots=True)
class Hole:
    """A part of the original text kept inside a replacement, with the edits that fall within it done.

    Attributes:
        indent: columns by which its lines after the first move (negative: to the left); lines that
            continue a string are left alone.
        first_line: move the first line too (the hole starts at the start of a line).
    """

    span: Span
    indent: int = 0
    first_line: bool = False


@dataclass(frozen=True, slots=True)
class Ref:
    """A name from elsewhere, by its full dotted name; spelled as the file imports it.

    The import is added when the file has none. Names that start with `helper.` mean the module of
    helper functions written into the repository.
    """

    name: str


Part: TypeAlias = "str | Hole | Ref"
Code: TypeAlias = "tuple[Part, ...]"
"""New text: literal pieces, kept pieces of the original, and names from elsewhere."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace a span of one file. An empty span inserts.

    Attributes:
        path: the file, relative to the target, with forward slashes.
        code: the new text. Original text that lies in no hole is gone, and an edit of another rule
            that falls there is a conflict.
    """

    path: str
    span: Span
    code: Code


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands: file, line and column (both from 1), and the span of the code meant."""

    path: str
    line: int
    column: int
    span: Span


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing a rule says about one place.

    Attributes:
        code: `FM` and three digits, never reused.
        message: what stands there and why it matters, one sentence.
        remedy: what to do; it becomes the text of the TODO where a person is needed.
        safety: of the edits; MANUAL findings carry none.
        edits: applied together or not at all.
        is_note: only informs: no TODO, no exit status 1.
        needs: keywords of the helper module's functions that the edits use, such as `device_id`.
        detail: more for the report: the units of a translated wrap.
        fades: about the text at its place and nothing more; dropped where another rule replaces that text.
        shares: what it has in common with others that are done together with it (`codemods.shared_types`).
    """

    code: str
    place: Place
    message: str
    remedy: str = ""
    safety: Safety = Safety.MANUAL
    edits: tuple[Edit, ...] = ()
    is_note: bool = False
    fades: bool = False
    shares: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset()
    detail: str = ""


class Outcome(enum.Enum):
    """What became of a finding."""

    DONE = "done"
    """Translated."""
    NOTE = "note"
    """Nothing to do."""
    TODO = "todo"
    """Needs a person."""
    IGNORED = "ignored"
    """A comment in the file says to leave it."""


@dataclass(frozen=True, slots=True)
class Reported:
    """A finding and its outcome; `detail` says why an edit was not applied, or the reason for ignoring.

    Attributes:
        left_whole: `--whole-only` leaves the place untouched, without a comment of ours.
    """

    finding: Finding
    outcome: Outcome
    detail: str = ""
    left_whole: bool = False


class SuppressionState(enum.Enum):
    """Whether a suppression still does something."""

    USED = "used"
    """It suppresses at least one finding."""
    UNUSED = "unused"
    """Nothing it names is found there any more."""
    NOT_JUDGED = "not judged"
    """It suppressed nothing in a run of some codes only."""


@dataclass(frozen=True, slots=True)
class Suppression:
    """One comment `# fsdp-migrate: ignore[FM507] why`.

    Attributes:
        line, column: of the comment, from 1.
        codes: that it names, sorted; none means every code.
        reason: empty where it gives none.
        findings: (code, line) of what it suppresses.
    """

    path: str
    line: int
    column: int
    codes: tuple[str, ...]
    reason: str
    state: SuppressionState
    findings: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class WrapReport:
    """One translated or refused wrap call, for the manifest and the report.

    Attributes:
        form: `inline`, `helper` or `left`.
        units: which submodules become units, in words.
    """

    path: str
    line: int
    form: str
    units: str


@dataclass(frozen=True, slots=True)
class FileChange:
    """New contents of one file; `before` is None for a file that did not exist."""

    path: str
    before: bytes | None
    after: bytes


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Everything a rewrite comes to; nothing has been written yet.

    Attributes:
        searched: Python files looked at.
        read: files parsed, because they name FSDP or are linked with one that does.
        configs: configuration files looked at, and those of them parsed because they name FSDP settings.
        skipped: file -> why it could not be looked at.
        suppressions: every suppression comment of the files read, used or not.
        elsewhere: where files are named: other files that hold FSDP1 code -> how often; left alone.
    """

    changes: tuple[FileChange, ...]
    reported: tuple[Reported, ...]
    wrap_sites: tuple[WrapReport, ...]
    searched: int
    read: int
    skipped: dict[str, str] = field(default_factory=dict)
    configs: tuple[int, int] = (0, 0)
    suppressions: tuple[Suppression, ...] = ()
    elsewhere: dict[str, int] = field(default_factory=dict)

    @property
    def open_findings(self) -> tuple[Reported, ...]:
        """What needs a person."""
        return tuple(r for r in self.reported if r.outcome is Outcome.TODO)


@dataclass(frozen=True, slots=True)
class Options:
    """What the user chose.

    Attributes:
        select: codes or prefixes of codes to apply; empty means all.
        ignore: codes or prefixes to leave out of the run.
        target_torch: (major, minor) whose names the output may use.
        helper_module: name of the helper module, without `.py`.
        modernize: improvements to add (`codemods.modernize`).
        drop_fsdp1: remove the FSDP1 branch where an FSDP2 branch stands beside it.
        whole_only: leave places that share a model untouched where one of them needs a person.
    """

    unsafe_fixes: bool = False
    drop_fsdp1: bool = False
    whole_only: bool = False
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    target_torch: tuple[int, int] = (2, 6)
    helper_module: str = "fsdp2_sharding"
    modernize: tuple[str, ...] = ()

    def wants(self, code: str) -> bool:
        """Whether findings of that code take part in this run."""
        if any(code.startswith(prefix) for prefix in self.ignore):
            return False
        return not self.select or any(code.startswith(prefix) for prefix in self.select)
