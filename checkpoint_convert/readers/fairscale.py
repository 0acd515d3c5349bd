"""Shards of fairscale's FSDP, as metaseq (OPT) saved them: flat parameters with names and shapes beside them.

Source: fairscale `nn/data_parallel/fully_sharded_data_parallel.py` (`local_metadata_dict`,
`consolidate_shard_weights`). Every rank's flat parameter ends in that rank's own padding.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from checkpoint_convert.errors import IncompleteError, UnreadableError, UnsupportedError
from checkpoint_convert.model import SourceFormat, TensorSource, numel
from checkpoint_convert.readers.holdings import FAIRSCALE, Holding
from checkpoint_convert.readers.names import clean
from checkpoint_convert.readers.parts import Part
from checkpoint_convert.readers.rank_sets import RankSet
from checkpoint_convert.tensor_sources import ConcatTensor, SliceTensor
from checkpoint_convert.values import is_tensor

_OPTIMIZER = "last_optimizer_state"
_MODEL_PART = re.compile(r"model_part-(\d+)")


@dataclass(frozen=True, slots=True)
class _Flat:
    """One flat parameter on one rank.

    Attributes:
        key: under which the file keeps it.
        names, shapes: of the parameters it is made of, in order, by full name.
        padding: elements at the end of this rank's piece that belong to no parameter.
    """

    key: str
    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    padding: int


def check_model_parts(holdings: Sequence[Holding]) -> None:
    """Raise `UnsupportedError` for shards of a model that is cut in other ways too."""
    names = [holding.path.name for holding in holdings]
    parts = {match.group(1) for name in names if (match := _MODEL_PART.search(name))}
    if len(parts) > 1:
        raise UnsupportedError(
            f"{names[0]} and others are {len(parts)} model-parallel parts, each with its own shards",
            hint="Merge the parts with metaseq's reshard_mp first, or convert one part (a quoted glob).",
        )


def fairscale_part(ranks: RankSet, *, use_optimizer: bool) -> Part:
    """The model of one save, whole.

    Raises:
        IncompleteError: shards are missing.
        UnsupportedError: there is an optimizer, whose state is cut in a way of its own.
    """
    first = ranks.first
    if use_optimizer and any(
        holding.optimizer is not None or holding.extras.get(_OPTIMIZER) for holding in ranks.holdings
    ):
        raise UnsupportedError(
            f"{ranks.name}: holds optimizer state in the flat form of fairscale, which is not read",
            hint="Convert the model alone (--only model).",
        )
    per_rank = [{flat.key: flat for flat in _flats(holding)} for holding in ranks.holdings]
    model: dict[str, TensorSource] = {}
    for flat in per_rank[0].values():
        whole = _joined(ranks, flat, per_rank)
        offset = 0
        for name, shape in zip(flat.names, flat.shapes, strict=True):
            model[name] = SliceTensor(whole, offset, shape)
            offset += numel(shape)
    model.update(_tied(first, model))
    for name, value in (first.model or {}).items():
        if name not in per_rank[0] and is_tensor(value):
            model[clean(name)] = value
    apart = (FAIRSCALE, _OPTIMIZER)
    extras = {key: value for key, value in first.extras.items() if key.partition(".")[0] not in apart}
    files = tuple((str(holding.path), rank) for rank, holding in enumerate(ranks.holdings))
    return Part(
        ranks.name,
        model,
        SourceFormat.LOCAL,
        extras=extras,
        world_size=len(ranks.holdings),
        files=files,
    )


def _joined(ranks: RankSet, flat: _Flat, per_rank: Sequence[Mapping[str, _Flat]]) -> TensorSource:
    """A flat parameter put together from the pieces of all ranks, their padding left out."""
    pieces: list[TensorSource] = []
    for holding, flats in zip(ranks.holdings, per_rank, strict=True):
        piece = (holding.model or {}).get(flat.key)
        if not is_tensor(piece) or flat.key not in flats:
            raise IncompleteError(
                f"{holding.path}: has no {flat.key}, which other ranks have",
                hint="Give the shards of one save only.",
            )
        kept = numel(piece.shape) - flats[flat.key].padding
        if kept < 0:
            raise UnreadableError(
                f"{holding.path}: {flat.key} is padded by more elements than it has",
                hint="The file is damaged.",
            )
        pieces.append(SliceTensor(piece, 0, (kept,)))
    wanted, found = sum(map(numel, flat.shapes)), sum(piece.shape[0] for piece in pieces)
    if wanted != found or len({piece.dtype for piece in pieces}) > 1:
        raise IncompleteError(
            f"{ranks.name}: the shards of {flat.key} have {found:,} elements, its parameters {wanted:,}",
            hint="Give the shards of all ranks of one save: the directory, or a quoted glob.",
        )
    return ConcatTensor(pieces, pieces[0].dtype, (found,))


@contextmanager
def _known_form(holding: Holding) -> Iterator[None]:
    """What goes wrong inside is damage of the file's metadata."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UnreadableError(
            f"{holding.path}: its {FAIRSCALE} is not built as fairscale builds it: {error!r}",
            hint="The file is damaged, or of a version that is not known.",
        ) from None


def _flats(holding: Holding) -> Iterator[_Flat]:
    """What a file says of its flat parameters."""
    with _known_form(holding):
        for entry in holding.extras[FAIRSCALE]["param_metadata"]:  # type: ignore[index]
            prefix = f"{entry['fsdp_path']}." if entry["fsdp_path"] else ""
            if entry.get("no_broadcast_optim_state"):
                raise UnsupportedError(
                    f"{holding.path}: {entry['fsdp_path']} is an expert that each rank has its own of",
                    hint="Such models are not read; fairscale's consolidate_shard_weights takes one rank's.",
                )
            for key, flat in entry["params"].items():
                names = tuple(clean(prefix + name) for name in flat["names"])
                shapes = tuple(tuple(map(int, shape)) for shape in flat["shapes"])
                if len(names) != len(shapes) or any(size < 0 for shape in shapes for size in shape):
                    raise ValueError(f"{key} has {len(names)} names and {len(shapes)} shapes")
                yield _Flat(prefix + key, names, shapes, max(int(flat["padding"]), 0))


def _tied(holding: Holding, model: Mapping[str, TensorSource]) -> dict[str, TensorSource]:
    """Other names of parameters. They are relative to their unit or not, by version (fairscale#815)."""
    found: dict[str, TensorSource] = {}
    with _known_form(holding):
        for entry in holding.extras[FAIRSCALE]["param_metadata"]:  # type: ignore[index]
            prefix = f"{entry['fsdp_path']}." if entry["fsdp_path"] else ""
            for of, name in entry.get("shared_param_info") or ():
                for lead in (prefix, ""):
                    if clean(lead + of) in model:
                        found.setdefault(clean(lead + name), model[clean(lead + of)])
                        break
    return {name: source for name, source in found.items() if name not in model}
