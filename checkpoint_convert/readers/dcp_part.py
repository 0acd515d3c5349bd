"""A DCP directory as a part: what of it is model and optimizer, and whether FSDP2 reads it as it is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from checkpoint_convert.errors import UnsupportedError
from checkpoint_convert.file_bytes import OpenFiles
from checkpoint_convert.model import Notice, SourceFormat
from checkpoint_convert.optim_groups import OLD_GROUPS
from checkpoint_convert.optim_state import SavedOptimizer, group_keys
from checkpoint_convert.readers.dcp import DcpDirectory, nested, read_dcp
from checkpoint_convert.readers.holdings import read_holding
from checkpoint_convert.readers.names import clean_names, flat_prefix
from checkpoint_convert.readers.options import ReadOptions
from checkpoint_convert.readers.parts import Part, with_candidates
from checkpoint_convert.readers.resolve import whole_tensors
from checkpoint_convert.values import is_tensor

_NEW_GROUP_KEYS = {"decoupled_weight_decay": frozenset({"betas", "eps", "weight_decay"})}


def dcp_part(files: OpenFiles, directory: Path, options: ReadOptions) -> Part:
    """Read a directory's metadata.

    Raises:
        UnsupportedError: it holds raw optimizer state, of which other ranks' data was never written.
    """
    found = read_dcp(files, directory)
    holding = read_holding(nested(found), directory, options)
    name = str(directory)
    model = None
    if holding.model is not None:
        model = whole_tensors(clean_names(holding.model, name), name)
    if options.use_optimizer and holding.optimizer is not None and holding.optimizer.by_number:
        _refuse_raw(holding.optimizer, found, name)
    flat = model is not None and any(flat_prefix(key) is not None for key in model)
    # Groups stored as one object are read as they are; unfolded, every key of the target must be there.
    unfolded = any("param_groups" in path[:-1] for path in found.paths.values())
    notices = _old_groups(holding.optimizer, name) if unfolded else ()
    renamed = holding.model is not None and model is not None and list(holding.model) != list(model)
    part = Part(
        name,
        model,
        SourceFormat.DCP if model is not None else None,
        holding.optimizer,
        None,
        SourceFormat.DCP if holding.optimizer is not None else None,
        extras=holding.extras,
        notices=notices,
        world_size=_world_size(found, flat),
        loadable_as_is=not (flat or renamed or notices or holding.by_key or not found.paths),
    )
    return with_candidates(part, holding)


def _world_size(found: DcpDirectory, flat: bool) -> int:
    """Ranks; a rank that held nothing of a flat parameter still wrote a file."""
    counts = [
        count
        for key, count in found.chunks.items()
        if flat and flat_prefix(key.split(".", 1)[-1]) is not None
    ]
    return max(found.world_size, *counts) if counts else found.world_size


def _refuse_raw(saved: SavedOptimizer, found: DcpDirectory, name: str) -> None:
    """Numbered state through DCP: equal keys of all ranks were taken for one value, and one rank's kept."""
    flat = any(
        is_tensor(value) and len(value.shape) == 1
        for entry in saved.state.values()
        for value in entry.values()
    )
    if found.world_size > 1 or flat:
        raise UnsupportedError(
            f"{name}: holds optimizer.state_dict() with numbered parameters. DCP takes "
            "equal keys of all ranks for one value, so only one rank's part was ever written",
            hint="The optimizer's state is lost; convert the model alone (--only model).",
        )


def _old_groups(saved: SavedOptimizer | None, name: str) -> tuple[Notice, ...]:
    for group in saved.groups if saved is not None else ():
        lacking = _lacking(group)
        if lacking and group_keys(group):
            text = (
                f"{name}: its parameter groups lack {', '.join(lacking)}, which newer torch releases ask for"
            )
            return (Notice(OLD_GROUPS, text),)
    return ()


def _lacking(group: Mapping[str, object]) -> list[str]:
    return [
        key for key, companions in _NEW_GROUP_KEYS.items() if key not in group and companions <= group.keys()
    ]
