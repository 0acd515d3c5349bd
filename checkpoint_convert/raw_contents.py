"""What stands in files that cannot be put together yet: keys, element types and sizes, file by file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from checkpoint_convert.file_bytes import OpenFiles
from checkpoint_convert.model import DType
from checkpoint_convert.plain_values import walk
from checkpoint_convert.readers.find import find
from checkpoint_convert.torch_file import read_torch_file
from checkpoint_convert.torch_objects import DTensorOnRank, ShardedTensorOnRank
from checkpoint_convert.values import dotted, is_tensor


@dataclass(frozen=True, slots=True)
class RawEntry:
    """A tensor of one file.

    Attributes:
        kind: `Tensor`, `ShardedTensor` or `DTensor`.
        shape: of the whole tensor, where the file says it.
    """

    file: Path
    key: str
    kind: str
    dtype: DType
    shape: tuple[int, ...]


def raw_entries(paths: Sequence[Path]) -> Iterator[RawEntry]:
    """Every tensor of every torch file behind the paths, headers only.

    Raises:
        UnreadableError: a file is damaged, or no checkpoint.
    """
    files = OpenFiles()
    try:
        for path in find(paths).torch_files:
            for where, value in walk(read_torch_file(files, path).value):
                key = dotted(where)
                if isinstance(value, ShardedTensorOnRank):
                    yield RawEntry(path, key, "ShardedTensor", value.dtype, value.shape)
                elif isinstance(value, DTensorOnRank):
                    yield RawEntry(path, key, "DTensor", value.local.dtype, value.shape)
                elif is_tensor(value):
                    yield RawEntry(path, key, "Tensor", value.dtype, tuple(value.shape))
    finally:
        files.close()
