"""What every reader does at the end: whole tensors only, plain extras, notices about the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from checkpoint_convert.errors import UnsupportedError
from checkpoint_convert.model import Notice, Opaque, TensorSource, Value
from checkpoint_convert.plain_values import walk
from checkpoint_convert.values import dotted, is_tensor

OPAQUE_EXTRA = "CK101"
"""An extra value is an object of an unknown class, and is not carried over."""


def whole_tensors(model: Mapping[str, object], where: str) -> dict[str, TensorSource]:
    """A model's tensors, each whole.

    Raises:
        UnsupportedError: one of them is only a rank's part.
    """
    for name, value in model.items():
        if not is_tensor(value):
            raise UnsupportedError(
                f"{where}: {name} is one rank's part of a sharded tensor",
                hint="Give the files of all ranks: the directory, or a quoted glob.",
            )
    return cast("dict[str, TensorSource]", dict(model))


def plain_extras(extras: Mapping[str, object], where: str) -> tuple[dict[str, Value], list[Notice]]:
    """Extras as they are, with a notice for each object that cannot be carried over."""
    notices = []
    for path, leaf in walk(extras):
        if isinstance(leaf, Opaque):
            name = dotted(path)
            notices.append(
                Notice(
                    OPAQUE_EXTRA,
                    f"{where}: {name} is an object of class {leaf.class_name} and is left behind",
                )
            )
    return cast("dict[str, Value]", dict(extras)), notices
