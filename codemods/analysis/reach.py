"""What hangs together: files by imports, in either direction, and places by what they share."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

_Key = TypeVar("_Key", bound=Hashable)


@dataclass(slots=True)
class Groups(Generic[_Key]):
    """Disjoint sets, each named by one of its members."""

    _parents: dict[_Key, _Key] = field(default_factory=dict)

    def of(self, key: _Key) -> _Key:
        """The name of the group of a key; one that was never joined is a group of its own."""
        parents, way = self._parents, []
        while (parent := parents.setdefault(key, key)) != key:
            way.append(key)
            key = parent
        parents.update(dict.fromkeys(way, key))
        return key

    def join(self, keys: Sequence[_Key]) -> None:
        """Make one group of those of all these keys."""
        for key in keys[1:]:
            self._parents[self.of(keys[0])] = self.of(key)


@dataclass(frozen=True, slots=True)
class Files:
    """Some of the files that have numbers, as the bits of one: thousands of files have as many such sets.

    Attributes:
        numbers: of all files.
    """

    numbers: Mapping[str, int]
    bits: int = 0

    def __contains__(self, path: object) -> bool:
        number = self.numbers.get(path) if isinstance(path, str) else None
        return number is not None and bool(self.bits >> number & 1)

    def among(self, paths: Iterable[str]) -> set[str]:
        """Those of some paths that are in it."""
        return {path for path in paths if path in self}


def gathered(bits: Mapping[str, int], edges: Mapping[str, Iterable[str]]) -> dict[str, int]:
    """What each has together with what all have that its edges lead to, however indirectly."""
    found, before = dict(bits), turned(edges)
    waiting = deque(found)
    while waiting:
        one = waiting.popleft()
        for other in before.get(one, ()):
            if other in found and found[one] | found[other] != found[other]:
                found[other] |= found[one]
                waiting.append(other)
    return found


def reached(start: Iterable[str], edges: Mapping[str, Iterable[str]]) -> set[str]:
    """Everything that edges lead to, however indirectly, and the start itself."""
    found = set(start)
    waiting = list(found)
    while waiting:
        for other in edges.get(waiting.pop(), ()):
            if other not in found:
                found.add(other)
                waiting.append(other)
    return found


def turned(edges: Mapping[str, Iterable[str]]) -> dict[str, set[str]]:
    """The same edges the other way: from what is imported to what imports it."""
    found: dict[str, set[str]] = {}
    for start, ends in edges.items():
        for end in ends:
            found.setdefault(end, set()).add(start)
    return found
