"""Settings of FSDP1 launchers and what they become: the words that the Accelerate and Transformers rules
share.

Everything here is pure and knows no file: a mapping of settings goes in, decisions about each of them come
out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

STRATEGIES = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")
"""In the order of `accelerate.utils.constants.FSDP_SHARDING_STRATEGY`: a strategy may be given by its number,
from 1."""


@dataclass(frozen=True, slots=True)
class Remark:
    """Something to say about one setting.

    Attributes:
        key: the setting as it is written; empty for the block.
        remove: the change can be made by removing the setting and by `set_to`, but is no exact equivalent.
    """

    key: str
    code: str
    message: str
    remedy: str = ""
    is_note: bool = False
    remove: bool = False
    set_to: tuple[tuple[str, object], ...] = ()


@dataclass(slots=True)
class Decisions:
    """What becomes of a block of settings.

    Attributes:
        removed: keys that go.
        replaced: key -> (new key, new value).
        added: new settings.
        mesh: (replicas, shards) where the layout needs a mesh.
        blocked: FSDP2 cannot do this: nothing is changed.
    """

    removed: list[str] = field(default_factory=list)
    replaced: dict[str, tuple[str, object]] = field(default_factory=dict)
    added: list[tuple[str, object]] = field(default_factory=list)
    mesh: tuple[int, int] | None = None
    blocked: bool = False
    remarks: list[Remark] = field(default_factory=list)

    def block(self, key: str, code: str, message: str, remedy: str) -> None:
        """Refuse the whole block because of one setting."""
        self.blocked = True
        self.remarks.append(Remark(key, code, message, remedy))

    def note(self, key: str, code: str, message: str) -> None:
        """Say something that needs no action."""
        self.remarks.append(Remark(key, code, message, is_note=True))


def bare(key: str) -> str:
    """A setting's name without `fsdp_`; Accelerate and the trainers accept both."""
    return key.removeprefix("fsdp_")


def strategy_named(value: object) -> str | None:
    """A sharding strategy by name or number, in any case, enum spelling included; None if it is none."""
    text = str(value).strip().upper()
    if text.isdigit():
        return STRATEGIES[int(text) - 1] if 1 <= int(text) <= len(STRATEGIES) else None
    text = text.rpartition(".")[2].removeprefix("_")
    return text if text in STRATEGIES else None


def truth(value: object) -> bool | None:
    """A yes or no, however it is written; None if it is neither."""
    if isinstance(value, bool):
        return value
    match str(value).strip().lower():
        case "true" | "1" | "yes" | "y" | "on" | "t":
            return True
        case "false" | "0" | "no" | "n" | "off" | "f":
            return False
    return None


def number(value: object) -> int | None:
    """A whole number, or None."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        return int(str(value))
    except ValueError:
        return None
