"""What stands in an output whose keys are a loader's own, by the place `places.stored_keys` names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from checkpoint_convert.errors import UnreadableError
from checkpoint_convert.file_bytes import OpenFiles
from checkpoint_convert.places import META_NAME, MODEL_FOLDER, OPTIM_FOLDER
from checkpoint_convert.readers.dcp import read_dcp
from checkpoint_convert.torch_file import read_torch_file
from checkpoint_convert.values import dotted, leaves
from checkpoint_convert.write_options import Preset


@contextmanager
def stored_entries(target: Path, preset: Preset) -> Iterator[dict[str, object]]:
    """Tensors, left in place, and values.

    Raises:
        CheckpointError: a part cannot be read.
    """
    files = OpenFiles()
    try:
        yield dict(_entries(files, target, preset))
    finally:
        files.close()


def _entries(files: OpenFiles, target: Path, preset: Preset) -> Iterator[tuple[str, object]]:
    if preset is not Preset.ACCELERATE:
        yield from read_dcp(files, target).values.items()
    else:
        for folder in (MODEL_FOLDER, OPTIM_FOLDER):
            if (target / folder).is_dir():
                for key, value in read_dcp(files, target / folder).values.items():
                    yield f"{folder}/{key}", value
    if preset is Preset.LIGHTNING:
        yield from meta_entries(files, target)


def meta_entries(files: OpenFiles, target: Path) -> Iterator[tuple[str, object]]:
    """What stands in lightning's file beside the tensors, by its place."""
    path = target / META_NAME
    meta = read_torch_file(files, path).value
    if not isinstance(meta, dict):
        raise UnreadableError(f"{path}: is no mapping", hint="The file is damaged.")
    for name, value in meta.items():
        for leaf in leaves((str(name),), value, keep_integer_keys=True):
            yield f"{META_NAME}/{dotted(leaf.path)}", leaf.value
