"""Nested values as torch's checkpoint planner flattens them.

Source: torch `distributed/checkpoint/_traverse.py` (`traverse_state_dict`): mappings are taken apart, lists
only where they hold tensors or mappings, tuples never; keys become strings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeGuard

from checkpoint_convert.model import Opaque, TensorSource, Value, size_bytes

KeyPath: TypeAlias = tuple["str | int", ...]
"""Where a value stands: keys of mappings as text, positions in lists as integers."""

_MODULE_STATE = "_extra_state"
"""Ends the keys of what `Module.get_extra_state` gave (`torch/nn/modules/module.py`)."""

INLINE_BYTES = 16 * 1024 * 1024
"""Largest tensor that may stand inside a tuple, which is written through memory as a whole."""


def dotted(path: Sequence[object]) -> str:
    """A path as DCP's flat keys and people write it: `model.layers.0.weight`."""
    return ".".join(map(str, path))


def is_module_state(name: object) -> bool:
    """Whether an entry of a model's state dict is what a module says of itself, and no tensor by its name."""
    return isinstance(name, str) and name.rpartition(".")[2] == _MODULE_STATE


def module_state_key(name: str) -> str:
    """The key among a source's extras of what a module says of itself where that is no tensor."""
    return f"model.{name}"


def module_of_state(key: str) -> str | None:
    """The name in the model that `module_state_key` was made of; None for other keys of extras."""
    container, _, name = key.partition(".")
    return name if container == "model" and is_module_state(name) else None


def is_tensor(value: object) -> TypeGuard[TensorSource]:
    """Whether a checkpoint value is a tensor."""
    return hasattr(value, "blocks") and hasattr(value, "dtype")


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value that is written as one thing, or why it cannot be.

    Attributes:
        refusal: empty, or why the value cannot be written.
    """

    path: KeyPath
    value: Value
    refusal: str = ""

    @property
    def tensor(self) -> TensorSource | None:
        """The value where it is a tensor."""
        return self.value if is_tensor(self.value) else None


def leaves(path: KeyPath, value: Value, *, keep_integer_keys: bool = False) -> Iterator[Leaf]:
    """Take a value apart as torch does.

    Args:
        keep_integer_keys: leave mappings with other than text keys whole where they hold no tensor. torch
            turns such keys into text, which is right for a DCP directory only.
    """
    if is_tensor(value):
        yield Leaf(path, value)
    elif isinstance(value, Mapping):
        yield from _mapping_leaves(path, value, keep_integer_keys)
    elif isinstance(value, list) and not _is_terminal(value):
        for number, item in enumerate(value):
            yield from leaves((*path, number), item, keep_integer_keys=keep_integer_keys)
    else:
        yield Leaf(path, value, _refusal(value))


def _mapping_leaves(path: KeyPath, value: Mapping[object, Value], keep_integer_keys: bool) -> Iterator[Leaf]:
    text_keys = all(isinstance(key, str) for key in value)
    # torch loses an empty mapping; written whole it survives.
    if not value or (keep_integer_keys and not text_keys and not holds_tensor(value)):
        yield Leaf(path, value, _refusal(value))
        return
    for key, item in value.items():
        yield from leaves((*path, str(key)), item, keep_integer_keys=keep_integer_keys)


def _is_terminal(values: Sequence[Value]) -> bool:
    for entry in values:
        if is_tensor(entry) or isinstance(entry, Mapping):
            return False
        if isinstance(entry, list) and not _is_terminal(entry):
            return False
    return True


def holds_tensor(value: Value) -> bool:
    """Whether a tensor stands anywhere inside."""
    if is_tensor(value):
        return True
    if isinstance(value, Mapping):
        return any(holds_tensor(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return any(holds_tensor(item) for item in value)
    return False


def _refusal(value: Value) -> str:
    """Why a value cannot be written as one object; empty where it can."""
    if isinstance(value, Opaque):
        unsaved = ", saved instead of its state_dict()" if value.class_name.startswith("torch.optim.") else ""
        return f"an object of class {value.class_name}{unsaved}"
    if is_tensor(value):
        size = size_bytes(value)
        return f"a tensor of {size} bytes inside a tuple" if size > INLINE_BYTES else ""
    if isinstance(value, Mapping):
        return next((why for pair in value.items() for part in pair if (why := _refusal(part))), "")  # type: ignore[arg-type]
    if isinstance(value, (list, tuple)):
        return next((why for item in value if (why := _refusal(item))), "")
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes, bytearray)):
        return ""
    return f"an object of class {type(value).__name__}"
