"""The collective calls of every rank, one line each as they begin, and where the ranks' sequences part; pure.

A mismatch ends in a hang or in an error of the transport that names neither the call nor the module. The
sequences do: ranks of one job make the same calls in the same order, and the first call that is not the same
is where a rank took another way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

FILE = "collectives.txt"


A_DTENSOR = "a DTensor"
"""Where a call is made by a DTensor's own operation, such as `full_tensor()`."""


@dataclass(frozen=True, slots=True)
class Call:
    """One collective call.

    Args:
        step: optimizer steps completed before it.
        numel: elements of its first tensor, 0 without one.
        where: the FSDP unit it is made for, "" when not known.
    """

    step: int
    backward: bool
    kind: str
    numel: int
    dtype: str
    ranks: int
    where: str

    def line(self) -> str:
        """As a rank writes it."""
        when, what = f"{self.step}\t{self.backward:d}", f"{self.kind}\t{self.numel}\t{self.dtype}"
        return f"{when}\t{what}\t{self.ranks}\t{self.where}\n"

    def words(self) -> str:
        """For the reader."""
        elements = f" of {self.numel:,} {self.dtype}" if self.numel else ""
        unit = f" for {self.where}" if self.where else ""
        return f"{self.kind}{elements}{unit} ({'backward' if self.backward else 'forward'})"


def read_calls(path: Path) -> list[Call]:
    """Calls of one rank; a line that was cut short is left out."""
    if not path.exists():
        return []
    calls = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True):
        fields = line.rstrip("\n").split("\t")
        if len(fields) == 7 and line.endswith("\n"):
            step, backward, kind, numel, dtype, ranks, where = fields
            calls.append(Call(int(step), backward == "1", kind, int(numel), dtype, int(ranks), where))
    return calls


def where_they_part(calls: Mapping[int, Sequence[Call]], *, hung: bool) -> str:
    """The first call that is not the same on every rank, in words; "" where there is none.

    Args:
        calls: by rank.
        hung: whether a rank with fewer calls is one that stayed away, rather than one that ended.
    """
    ranks = sorted(calls)
    for position in range(max((len(each) for each in calls.values()), default=0)):
        there = {rank: calls[rank][position] for rank in ranks if position < len(calls[rank])}
        if len(set(there.values())) > 1:
            return _parted(position, there)
        if len(there) < len(ranks):
            return _absent(position, there, ranks) if hung else ""
    return ""


def _parted(position: int, there: dict[int, Call]) -> str:
    usual, _ = Counter(there.values()).most_common(1)[0]
    odd = {rank: call for rank, call in there.items() if call != usual}
    if len(odd) * 2 == len(there):
        shown = there
    else:
        first = next(rank for rank, call in there.items() if call == usual)
        shown = {first: usual, **odd}
    lines = "".join(f"\n  rank {rank}: {call.words()}" for rank, call in sorted(shown.items())[:8])
    step = min(call.step for call in there.values()) + 1
    return f"the ranks part at collective {position + 1}, in step {step}:{lines}"


def _absent(position: int, there: dict[int, Call], ranks: list[int]) -> str:
    waiting, call = next(iter(there.items()))
    away = [str(rank) for rank in ranks if rank not in there]
    return (
        f"rank {', '.join(away)} made {position} collectives and no more; the next one is not made there, in "
        f"step {call.step + 1}:\n  rank {waiting}: {call.words()}"
    )
