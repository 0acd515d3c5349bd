"""One save as the readers hand it on: whole tensors by clean name, whatever it was cut into.

A part may be a model, an optimizer, or both, and keeps what only the layout of the model can resolve: flat
parameters, and optimizer state over flat parameters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from checkpoint_convert.errors import CheckpointError, IncompleteError, UnsupportedError
from checkpoint_convert.model import Notice, SourceFormat, TensorSource
from checkpoint_convert.optim_state import SavedOptimizer
from checkpoint_convert.readers.holdings import Holding
from checkpoint_convert.readers.merged import (
    all_same,
    differing_options,
    differs,
    joined_pieces,
    merge_extras,
    merge_optimizers,
    on_ranks,
    padded_flat,
    refuse_other_moments,
)
from checkpoint_convert.readers.names import clean_names, flat_prefix
from checkpoint_convert.readers.rank_hints import in_order
from checkpoint_convert.readers.rank_sets import RankSet, last_number
from checkpoint_convert.readers.resolve import whole_tensors
from checkpoint_convert.readers.sharded import merge
from checkpoint_convert.readers.unsharded import OPTIMIZER, differences, unsharded
from checkpoint_convert.torch_objects import DTensorOnRank, ShardedTensorOnRank
from checkpoint_convert.values import is_tensor

LEFT = "CK107"
"""A file holds other models or optimizers than those taken, which are not carried over."""
_SHOWN = 8


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A save, or what one directory holds.

    Attributes:
        name: for messages: the file, directory, or pattern of files.
        model: whole tensors by clean FQN, and flat parameters under their own names; None: no model.
        model_format, optimizer_format: what each was found to be; None where it is not there.
        optimizer: keyed by FQN, or by number over whole parameters; None where there is none, or it is raw.
        raw: one state dict per rank over flat parameters, in rank order; None where it is not that.
        local: per rank, the model as that rank saved it, for layouts that only the storages tell.
        pieced: `local` holds 1-D pieces of each parameter, and no flat parameters beside them.
        extras: everything else.
        world_size: ranks over which it was sharded; None for a file that stands alone.
        files: each file with its rank (None where neither its name nor its content tells); for messages.
        loadable_as_is: FSDP2 reads it directly.
        refusal: why the files alone make no model; `local` then is rows of one, or several models.
        told: the files say which rank they are of; or it does not matter.
        candidates, by_key: as of a `Holding`.
    """

    name: str
    model: Mapping[str, TensorSource] | None = None
    model_format: SourceFormat | None = None
    optimizer: SavedOptimizer | None = None
    raw: tuple[SavedOptimizer, ...] | None = None
    optimizer_format: SourceFormat | None = None
    local: tuple[Mapping[str, object], ...] = ()
    pieced: bool = False
    extras: Mapping[str, object] = field(default_factory=dict)
    notices: tuple[Notice, ...] = ()
    world_size: int | None = None
    saver_torch: str | None = None
    loadable_as_is: bool = False
    files: tuple[tuple[str, int | None], ...] = ()
    told: bool = True
    refusal: CheckpointError | None = None
    candidates: tuple[str, ...] = ()
    by_key: frozenset[str] = frozenset()

    @property
    def unnamed(self) -> tuple[tuple[str, int | None], ...]:
        """The files, where nothing in them says which rank they are of."""
        return () if self.told or len(self.files) < 2 else self.files


def part_of(ranks: RankSet, *, use_optimizer: bool = True) -> Part:
    """Put the files of one save together.

    Args:
        use_optimizer: False where only the model is wanted.

    Raises:
        IncompleteError: a rank is missing or superfluous, or ranks disagree.
    """
    if ranks.ranks is None:
        return _alone(ranks.first)
    pieced = False
    refusal: CheckpointError | None = None
    if ranks.first.model is not None and not any(map(_sharded_values, ranks.holdings)):
        settled = unsharded(ranks, use_optimizer=use_optimizer)
        if isinstance(settled, Holding):
            refuse_other_moments(ranks.holdings, ranks.name)
            differing = differences(ranks, use_optimizer=use_optimizer)
            is_first = settled is ranks.first
            return _copies(ranks, differing) if is_first else _alone(settled, _besides(differing))
        if isinstance(settled, CheckpointError):
            if ranks.ranks != tuple(range(len(ranks.ranks))):
                raise settled
            refusal = settled
        else:
            pieced = settled
    holdings = _complete(ranks)
    notices: list[Notice] = []
    files = tuple((str(one.path), rank) for one, rank in zip(holdings, ranks.ranks, strict=True))
    part = Part(
        ranks.name, pieced=pieced, world_size=len(holdings), files=files, told=_told(ranks), refusal=refusal
    )
    if holdings[0].model is not None:
        local = tuple(clean_names(dict(holding.model or {}), str(holding.path)) for holding in holdings)
        if refusal is None:
            model = _merge_models(ranks, local, notices, pieced=pieced)
        else:
            model = {name: value for name, value in local[0].items() if is_tensor(value)}
        flat = pieced or any(flat_prefix(name) is not None for name in model)
        found = SourceFormat.LOCAL if flat else SourceFormat.SHARDED
        part = replace(part, model=model, model_format=found, local=local)
    saved = tuple(holding.optimizer for holding in holdings if holding.optimizer is not None)
    if differing := list(differing_options(saved)):
        notices.append(differs(ranks.name, differing))
    if saved and saved[0].by_number:
        part = replace(part, raw=saved, optimizer_format=SourceFormat.RAW_OPTIM)
    elif saved:
        merged = merge_optimizers(ranks, saved, notices)
        part = replace(part, optimizer=merged, optimizer_format=SourceFormat.SHARDED)
    extras = merge_extras(holdings, notices, ranks.name)
    part = replace(part, extras=extras, notices=tuple(notices))
    return with_candidates(part, holdings[0])


def _told(ranks: RankSet) -> bool:
    """Whether files whose order matters say which rank they are of, or tell it by the way.

    Raises:
        IncompleteError: they tell another order by the way.
    """
    return ranks.told or in_order(ranks.holdings, ranks.name)


def _copies(ranks: RankSet, differing: Sequence[str]) -> Part:
    """Files that hold the whole model each; the optimizer may be each rank's own, over its flat shards."""
    shares = tuple(holding.optimizer for holding in ranks.holdings if holding.optimizer is not None)
    is_raw = len(shares) == len(ranks.holdings) and all(one.by_number for one in shares)
    if OPTIMIZER not in differing or not is_raw:
        return _alone(ranks.first, differing)
    numbers = ranks.ranks or ()
    files = tuple((str(one.path), rank) for one, rank in zip(_complete(ranks), numbers, strict=True))
    return replace(
        _alone(ranks.first, _besides(differing)),
        name=ranks.name,
        optimizer=None,
        raw=shares,
        optimizer_format=SourceFormat.RAW_OPTIM,
        files=files,
        told=_told(ranks),
    )


def _besides(differing: Sequence[str]) -> list[str]:
    return [name for name in differing if name != OPTIMIZER]


def with_candidates(part: Part, holding: Holding) -> Part:
    """What there was to choose from, and a notice of what is left in the source."""
    part = replace(part, candidates=holding.candidates, by_key=holding.by_key)
    if not holding.left:
        return part
    which = f"{holding.left[0]} takes it" if len(holding.left) == 1 else "takes one of them"
    text = f"{part.name}: left in the source: {', '.join(holding.left)} (--from-key {which} instead)"
    return replace(part, notices=(*part.notices, Notice(LEFT, text)))


def _alone(holding: Holding, differing: Sequence[str] = ()) -> Part:
    model = None
    if holding.model is not None:
        model = whole_tensors(clean_names(holding.model, str(holding.path)), str(holding.path))
    part = Part(
        str(holding.path),
        model,
        SourceFormat.FULL if model is not None else None,
        holding.optimizer,
        None,
        SourceFormat.FULL if holding.optimizer is not None else None,
        extras=holding.extras,
        notices=(differs(str(holding.path), differing),) if differing else (),
        files=((str(holding.path), last_number(holding.path)),),
    )
    return with_candidates(part, holding)


def _complete(ranks: RankSet) -> tuple[Holding, ...]:
    """The holdings, if no rank is missing and none is from elsewhere."""
    numbers = ranks.ranks or ()
    if ranks.first.model is None and ranks.first.optimizer is None:
        return ranks.holdings  # random states and the like: whichever there are
    worlds = {world for holding in ranks.holdings for world in _worlds(holding)}
    if len(worlds) > 1:
        raise IncompleteError(
            f"{ranks.name}: some files are of a run of {min(worlds)} ranks, others of {max(worlds)}",
            hint="Give the files of one save only.",
        )
    world = next(iter(worlds), max(numbers) + 1)
    stranger = next((rank for rank in numbers if rank >= world and not _hybrid(ranks)), None)
    if stranger is not None:
        raise IncompleteError(
            f"{ranks.name}: there is a file of rank {stranger}, but the run had {world} ranks",
            hint="Give the files of one save only.",
        )
    missing = sorted(set(range(world)) - set(numbers))
    if missing and not _hybrid(ranks):
        words = "the file of rank {} is" if len(missing) == 1 else "the files of rank {} are"
        raise IncompleteError(
            f"{ranks.name}: {words.format(f'{_listed(missing)} of {world}')} missing",
            hint="Give the files of all ranks: the directory, or a quoted glob.",
        )
    return ranks.holdings


def _listed(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:_SHOWN]))
    return shown + (f" and {len(numbers) - _SHOWN} others" if len(numbers) > _SHOWN else "")


def _worlds(holding: Holding) -> set[int]:
    """World sizes the file's sharded tensors tell."""
    found = set()
    for value in _sharded_values(holding):
        if isinstance(value, ShardedTensorOnRank) and value.world_size is not None:
            found.add(value.world_size)
        elif isinstance(value, DTensorOnRank) and value.mesh_shape:
            found.add(math.prod(value.mesh_shape))
    return found


def _sharded_values(holding: Holding) -> list[ShardedTensorOnRank | DTensorOnRank]:
    states = holding.optimizer.state.values() if holding.optimizer is not None else ()
    values = [*(holding.model or {}).values(), *(value for state in states for value in state.values())]
    return [value for value in values if isinstance(value, ShardedTensorOnRank | DTensorOnRank)]


def _hybrid(ranks: RankSet) -> bool:
    """Whether replicas exist: then not every rank's file is needed, and coverage alone decides."""
    for value in _sharded_values(ranks.first):
        if isinstance(value, DTensorOnRank):
            return None in value.placements and len(value.placements) > 1
        return len(ranks.holdings) > (value.world_size or 0) or value.rank != value.global_rank
    return False


def _merge_models(
    ranks: RankSet, local: Sequence[Mapping[str, object]], notices: list[Notice], *, pieced: bool
) -> dict[str, TensorSource]:
    merged: dict[str, TensorSource] = {}
    differing = []
    for name in dict.fromkeys(name for model in local for name in model):
        found = on_ranks(name, ranks, local)
        if flat_prefix(name) is not None and all(map(is_tensor, found.values)):
            merged[name] = padded_flat(found, ranks.name)
            continue
        if pieced and not all_same(found.values):
            merged[name] = joined_pieces(found)
            continue
        value = merge(found, ranks.name)
        if not is_tensor(value):
            raise UnsupportedError(
                f"{ranks.name}: {name} is no tensor", hint="Leave it out of the state dict."
            )
        merged[name] = value
        if value is found.values[0] and not all_same(found.values):
            differing.append(name)
    if differing and not any(flat_prefix(name) is not None for name in merged):
        notices.append(differs(ranks.name, differing))
    return merged
