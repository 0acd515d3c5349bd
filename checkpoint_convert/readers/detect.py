"""What a source is, by what is in it; and which reader takes it from there.

Names of files only put ranks in order. Where two answers are equally good, both are named and `--from`
decides. Readers of what is not there are not imported: most checkpoints are of one kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from checkpoint_convert.errors import AmbiguousFormatError, IncompleteError
from checkpoint_convert.file_bytes import OpenFiles
from checkpoint_convert.model import Contents, Notice, Opaque, SourceFormat
from checkpoint_convert.places import META_NAME
from checkpoint_convert.readers.assemble import assemble
from checkpoint_convert.readers.find import Found, find
from checkpoint_convert.readers.holdings import FAIRSCALE, Holding, read_holding
from checkpoint_convert.readers.names import clean_names
from checkpoint_convert.readers.options import ReadOptions
from checkpoint_convert.readers.parts import Part, part_of
from checkpoint_convert.readers.rank_sets import group_ranks
from checkpoint_convert.torch_file import TorchFile, read_torch_file

UNREAD = "CK109"
"""A given directory has others with checkpoint files inside of it."""
_SHOWN = 4


def detect(
    files: OpenFiles, paths: Sequence[Path], options: ReadOptions, opened: list[TorchFile]
) -> Contents:
    """Read what is behind the paths, headers only.

    Args:
        opened: takes every torch file that was read, for the check of checksums at the end.
    """
    found = find(paths)
    try:
        return _contents(files, paths, found, options, opened)
    except (AmbiguousFormatError, IncompleteError) as error:
        from checkpoint_convert.readers.generations import one_of_several

        error.hint += one_of_several([*found.torch_files, *found.dcp, *found.safetensors])
        raise


def _contents(
    files: OpenFiles, paths: Sequence[Path], found: Found, options: ReadOptions, opened: list[TorchFile]
) -> Contents:
    parts, holdings = _safetensors(files, found)
    parts = [*_dcp_parts(files, found, options), *parts]
    for path in found.torch_files:
        file = read_torch_file(files, path)
        opened.append(file)
        beside = len(found.torch_files) + len(found.dcp) + len(found.safetensors) > 1
        if isinstance(file.value, Opaque) and beside:
            # `training_args.bin` and the like stand beside checkpoints; they are noted and left behind.
            holdings.append(Holding(path, None, None, {path.name: file.value}))
        elif path.name == META_NAME and path.parent in found.dcp and isinstance(file.value, dict):
            # Lightning's: everything that is neither model nor optimizer.
            holdings.append(Holding(path, None, None, {str(key): item for key, item in file.value.items()}))
        else:
            holdings.append(read_holding(file.value, path, options))
    fairscale = [holding for holding in holdings if FAIRSCALE in holding.extras]
    if fairscale:
        from checkpoint_convert.readers.fairscale import check_model_parts, fairscale_part

        check_model_parts(fairscale)
    given = {Path(path) for path in paths}
    for ranks in group_ranks(holdings, given, use_optimizer=options.use_optimizer):
        if ranks.first in fairscale:
            parts.append(fairscale_part(ranks, use_optimizer=options.use_optimizer))
        else:
            parts.append(part_of(ranks, use_optimizer=options.use_optimizer))
    contents = assemble(parts, options)
    if not found.unread:
        return contents
    listed = ", ".join(map(str, found.unread[:_SHOWN]))
    more = f" and {len(found.unread) - _SHOWN} more" if len(found.unread) > _SHOWN else ""
    text = f"not looked into: {listed}{more}; name them too if they are of this save"
    return replace(contents, notices=(*contents.notices, Notice(UNREAD, text)))


def _dcp_parts(files: OpenFiles, found: Found, options: ReadOptions) -> list[Part]:
    if not found.dcp:
        return []
    from checkpoint_convert.readers.dcp_part import dcp_part

    return [dcp_part(files, directory, options) for directory in found.dcp]


def _safetensors(files: OpenFiles, found: Found) -> tuple[list[Part], list[Holding]]:
    """The safetensors files of a directory are one model; if names are repeated, each is one, or a rank's."""
    if not found.safetensors:
        return [], []
    from checkpoint_convert.readers.safetensors import INDEX, read_safetensors

    by_directory: dict[Path, list[Path]] = {}
    for path in found.safetensors:
        by_directory.setdefault(path.parent, []).append(path)
    parts, holdings = [], []
    for directory, paths in by_directory.items():
        index = [path for path in paths if path.name.endswith(INDEX)]
        if not index and len(paths) > 1:
            each = [read_safetensors(files, [path]) for path in paths]
            if len(set().union(*each)) < sum(map(len, each)):
                holdings += [Holding(path, one, None) for path, one in zip(paths, each, strict=True)]
                continue
        name = str(index[0] if index else paths[0] if len(paths) == 1 else directory)
        tensors = read_safetensors(files, index or paths)
        parts.append(Part(name, clean_names(tensors, name), SourceFormat.SAFETENSORS))
    return parts, holdings
