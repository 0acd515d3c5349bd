"""Tensors whose elements do not lie in a file one by one: sparse, quantized, lazy, of a class of their own.

A model or an optimizer without one of its tensors is no model and no optimizer, so these are refused.
Source: torch `torch/_tensor.py` (`Tensor._reduce_ex_internal`), `torch/_utils.py` (`_rebuild_*`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from checkpoint_convert.errors import UnsupportedError
from checkpoint_convert.model import Opaque

_REBUILT = re.compile(r"torch\.(_utils|_tensor)\._rebuild_\w+|torch\.nested\.\w+\._rebuild\w*")
_KINDS = (
    ("sparse", "a sparse tensor", "Save it as a dense one: tensor.to_dense()."),
    ("qtensor", "a quantized tensor", "Save it as a plain one: tensor.dequantize()."),
    ("meta", "a tensor on the meta device, without elements", "Save the model once it has its weights."),
    ("nested", "a nested tensor", "Save its parts: tensor.unbind()."),
    ("tensor_v", "a lazily conjugated or negated tensor, or of an unknown dtype", ""),
)
_PLAIN = "Save it as a plain tensor: tensor.resolve_conj().resolve_neg().clone(), in a dtype of its own."
_OTHER = "Save it as a plain tensor, as its own library converts it to one."


def refuse_strange_tensors(values: Iterable[tuple[object, object]], path: Path) -> None:
    """Raise `UnsupportedError` for the first, given names and values."""
    for name, value in values:
        if isinstance(value, Opaque) and _REBUILT.fullmatch(value.class_name):
            made_by = value.class_name.rpartition(".")[2]
            found = (f"a tensor subclass ({made_by})", _OTHER)
            for mark, what, remedy in _KINDS:
                if mark in made_by:
                    found = (what, remedy or _PLAIN)
                    break
            raise UnsupportedError(f"{path}: {name} is {found[0]}", hint=found[1])
