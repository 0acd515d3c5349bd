"""What a source is, by what is in it; and which reader takes it from there.

Names of files only put ranks in order. Where two answers are equally good, both are named and `--from`
decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from checkpoint_convert.file_bytes import OpenFiles
from checkpoint_convert.model import Contents
from checkpoint_convert.readers.assemble import assemble
from checkpoint_convert.readers.find import find
from checkpoint_convert.readers.holdings import read_holding
from checkpoint_convert.readers.options import ReadOptions
from checkpoint_convert.readers.parts import Part, part_of
from checkpoint_convert.readers.rank_sets import group_ranks
from checkpoint_convert.torch_file import TorchFile, read_torch_file


def detect(
    files: OpenFiles, paths: Sequence[Path], options: ReadOptions, opened: list[TorchFile]
) -> Contents:
    """Read what is behind the paths, headers only.

    Args:
        opened: takes every torch file that was read, for the check of checksums at the end.
    """
    found = find(paths)
    holdings = []
    for path in found.torch_files:
        file = read_torch_file(files, path)
        opened.append(file)
        holdings.append(read_holding(file.value, path))
    parts: list[Part] = [part_of(ranks) for ranks in group_ranks(holdings)]
    return assemble(parts, options)
