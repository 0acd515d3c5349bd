"""What a conversion wrote, opened again in its form: for the read-back, and later for `verify-ckpt`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from checkpoint_convert.errors import UnreadableError
from checkpoint_convert.model import Contents
from checkpoint_convert.stored_entries import stored_entries
from checkpoint_convert.write_options import OutputFormat, Preset
from checkpoint_convert.writers.safetensors import GROUPS_NAME, OPTIMIZER_NAME

Reopen: TypeAlias = "Callable[[Path], AbstractContextManager[Contents]]"
"""Opens a checkpoint with the inert reader."""


@dataclass(frozen=True, slots=True, eq=False)
class Whole:
    """A directory or file that any reader of checkpoints takes apart."""

    contents: Contents


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """Directories whose keys are a loader's own: everything by the place it stands at."""

    by_place: Mapping[str, object]


@dataclass(frozen=True, slots=True, eq=False)
class Beside:
    """Safetensors files of the model and of the optimizer (None where there is none), and its groups."""

    model: Contents | None
    optimizer: Contents | None
    groups: list[dict[str, object]]


Reopened: TypeAlias = "Whole | Entries | Beside"


@contextlib.contextmanager
def reopened(
    target: Path, to: OutputFormat, preset: Preset, names: Collection[str], reopen: Reopen
) -> Iterator[Reopened]:
    """Open an output.

    Args:
        target: its directory; its file where it is one.
        names: its files, as the plan or the report lists them.

    Raises:
        CheckpointError: it, or a part of it, cannot be read.
    """
    with contextlib.ExitStack() as stack:
        if to is OutputFormat.SAFETENSORS:
            has_model, has_optimizer = bool(set(names) - {OPTIMIZER_NAME}), OPTIMIZER_NAME in names
            model = stack.enter_context(reopen(target)) if has_model else None
            optimizer = stack.enter_context(reopen(target / OPTIMIZER_NAME)) if has_optimizer else None
            yield Beside(model, optimizer, read_groups(target / GROUPS_NAME))
        elif preset is Preset.TORCH:
            yield Whole(stack.enter_context(reopen(target)))
        else:
            yield Entries(stack.enter_context(stored_entries(target, preset)))


def read_groups(path: Path) -> list[dict[str, object]]:
    """The optimizer's groups beside safetensors; none where there is no such file.

    Raises:
        UnreadableError: it is no list of groups.
    """
    try:
        groups = json.loads(path.read_bytes()) if path.exists() else []
        return [dict(group.items()) for group in groups]
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UnreadableError(f"{path} is damaged ({error})", hint="convert the source again") from error
