"""What an unpickled stream may refer to, held still: names that were not imported, calls that were not made.

The pickle machine (`unpickle`) builds these; `torch_objects` knows which of them mean tensors.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Symbol:
    """A global of the pickled program (`torch._utils._rebuild_tensor_v2`), by name only."""

    module: str
    name: str

    @property
    def dotted(self) -> str:
        """Module and name in one, for messages."""
        return f"{self.module}.{self.name}"


class _Attributes:
    """A dictionary of attributes, packed."""

    __slots__ = ("names", "values")

    def __init__(self, names: tuple[str, ...], values: tuple[object, ...]) -> None:
        self.names, self.values = names, values


_NAMES: dict[tuple[str, ...], tuple[str, ...]] = {}
_MOST_NAMES = 1000
_TEXTS = frozenset({str})


class Record:
    """A call that was recorded and not made, and what the stream did to its result.

    Compared and hashed by identity, as an object of an unknown class must be.

    Attributes:
        target: the callable or class: a `Symbol`, or a `Record` where the callable was itself computed.
        args: positional arguments; for `NEWOBJ_EX` followed by the keyword dictionary.
        items: what was appended, for subclasses of list and set.
        pairs: what was assigned by key, for subclasses of dict.
    """

    __slots__ = ("_state", "args", "items", "pairs", "target")

    def __init__(self, target: object, args: tuple[object, ...]) -> None:
        self.target = target
        self.args = args
        self._state: object = None
        self.items: list[object] | None = None
        self.pairs: dict[object, object] | None = None

    def build(self, state: object) -> None:
        """Take the state; attributes are kept as names and values, a third of a dictionary's size."""
        if type(state) is dict and state and _TEXTS.issuperset(map(type, state)):
            names = tuple(state)
            if len(_NAMES) < _MOST_NAMES:
                names = _NAMES.setdefault(names, names)
            state = _Attributes(names, tuple(state.values()))
        self._state = state

    @property
    def state(self) -> object:
        """What `BUILD` would have given to `__setstate__`; None where it never came."""
        state = self._state
        if isinstance(state, _Attributes):
            return dict(zip(state.names, state.values, strict=True))
        return state

    @property
    def class_name(self) -> str:
        """The dotted name of what would have been built."""
        target = self.target
        while isinstance(target, Record):
            target = target.target
        return target.dotted if isinstance(target, Symbol) else type(target).__name__

    def attributes(self) -> dict[str, object]:
        """The instance attributes the state describes: `__dict__`, and the slots of a two-part state."""
        state = self.state
        parts = state if isinstance(state, tuple) and len(state) == 2 else (state,)
        found: dict[str, object] = {}
        for part in parts:
            if isinstance(part, dict):
                found.update((key, value) for key, value in part.items() if isinstance(key, str))
        return found
