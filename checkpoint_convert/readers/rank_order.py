"""Whether ranks' files are in order where no file says its rank: what padding and pieces prove or contradict.

FSDP1 fills the end of the last ranks' shards of a flat parameter with zeros, which a step leaves as they are.
With use_orig_params=True parameters of one module follow each other through the ranks.
Source: `torch/distributed/fsdp/_flat_param.py` (`_get_shard`, `_init_shard_metadata`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from checkpoint_convert.errors import IncompleteError
from checkpoint_convert.layout import ModelLayout
from checkpoint_convert.model import Notice, TensorSource, numel
from checkpoint_convert.optim_state import SavedOptimizer
from checkpoint_convert.raw_state import Slot
from checkpoint_convert.readers.local import LocalModel
from checkpoint_convert.readers.names import flat_prefix
from checkpoint_convert.readers.parts import Part
from checkpoint_convert.values import is_tensor

BY_NAME = "CK108"
"""Which rank a file is of was taken from its name or place, and nothing in the files speaks for it."""

_PADDED_STATES = ("exp_avg", "momentum_buffer", "exp_avg_sq")
"""States that are zero where the gradient always was."""
_HINT = "Each file must be of the rank that its name or its place on the command line says."


def by_name(files: Sequence[tuple[str, int | None]], where: str) -> Notice:
    """The notice that names alone put the files in order."""
    first, last = files[0][0], files[-1][0]
    return Notice(
        BY_NAME,
        f"{where}: only names, or the order they were given in, say which rank each file is of: {first} "
        f"rank 0, {last} rank {len(files) - 1}",
    )


def padding_proves(shards: Sequence[TensorSource], total: int, label: str) -> bool:
    """Hold the end of the last shards against FSDP1's padding.

    Args:
        shards: one per rank, of equal size, in the order that is to be looked at.
        total: elements before the padding.

    Returns:
        Whether no other order is possible: of two files only one ends in padding.

    Raises:
        IncompleteError: another file ends in it.
    """
    shard = numel(shards[0].shape)
    last = (total - 1) // shard if total else 0
    padding = (last + 1) * shard - total
    if not 0 < padding < shard:
        return False
    ending = [rank for rank, source in enumerate(shards) if _ends_in_zeros(source, padding)]
    if last in ending or not ending:
        return ending == [last] and len(shards) == 2
    raise IncompleteError(
        f"{label}: the ranks' files are not in order: the share of rank {last} should end in {padding} "
        f"zeros, FSDP1's padding, and that of rank {ending[-1]} does",
        hint=_HINT,
    )


def _ends_in_zeros(source: TensorSource, count: int) -> bool:
    whole = numel(source.shape)
    return not any(any(bytes(block)) for block in source.blocks(whole - count, whole))


def optimizer_proves(
    slots: Sequence[Slot], numbers: Sequence[object], ranks: Sequence[SavedOptimizer], where: str
) -> bool:
    """Whether the files of one replica can be in no other order than they are.

    Raises:
        IncompleteError: they are in another.
    """
    if len(ranks) == 1:
        return True
    pieces = [slot.numels for slot in slots if not slot.whole and len(set(slot.numels)) > 1]
    if len(set(zip(*pieces, strict=True))) == len(ranks):
        return True  # no two ranks hold the same numbers of elements, and the sizes fit
    proven = False
    for slot, number in zip(slots, numbers, strict=True):
        stop = max(offset + spec.numel for _, offset, spec in slot.members)
        if slot.whole or len(set(slot.numels)) > 1 or stop == sum(slot.numels):
            continue
        for item in _PADDED_STATES:
            shards = [saved.state.get(number, {}).get(item) for saved in ranks]
            held = [shard for shard in shards if is_tensor(shard)]
            if len(held) == len(ranks) and all(numel(shard.shape) == slot.numels[0] for shard in held):
                proven |= padding_proves(held, stop, f"{where}: optimizer state {slot.name}.{item}")
                break
    return proven


def model_order(part: Part, layout: ModelLayout, local: LocalModel) -> tuple[Notice, ...]:
    """What is to be said of the order of a flat model's files.

    Raises:
        IncompleteError: they are not in order.
    """
    if not part.unnamed:
        return ()
    if local.pieces:
        proven = pieces_prove(local.pieces, layout, part.name)
    else:
        proven = False
        for prefix, unit in local.units.items():
            shards = [_flat_shard(model, prefix) for model in part.local]
            held = [shard for shard in shards if shard is not None]
            even = len(held) * unit.shard >= unit.total and len(held) == len(shards)
            if even and unit.shard < unit.total and all(numel(one.shape) == unit.shard for one in held):
                proven |= padding_proves(held, unit.total, f"{part.name}: {prefix or 'the root'}._flat_param")
    return () if proven else (by_name(part.unnamed, part.name),)


def _flat_shard(model: Mapping[str, object], prefix: str) -> TensorSource | None:
    found = (value for name, value in model.items() if flat_prefix(name) == prefix)
    value = next(found, None)
    return value if is_tensor(value) else None


def pieces_prove(pieces: Mapping[str, Sequence[int]], layout: ModelLayout, where: str) -> bool:
    """Whether pieces of parameters lie on the ranks as a flat parameter's do, and in no other order could.

    Args:
        pieces: elements of each parameter on each rank, of all replicas.

    Raises:
        IncompleteError: a parameter is on a rank after one that follows it in the same module.
    """
    before: set[tuple[int, int]] = set()
    once = {}
    for spec in layout.unique_parameters():
        numels = pieces.get(spec.fqn, ())
        once[spec.fqn] = numels[: len(numels) // max(1, sum(numels) // max(1, spec.numel))]
    for names in _siblings(layout, pieces):
        for at, name in enumerate(names):
            for later in names[at + 1 :]:
                pairs = product(_holding(once[name]), _holding(once[later]))
                before |= {(rank, other) for rank, other in pairs if rank != other}
    for rank, other in sorted(before):
        if rank > other:
            raise IncompleteError(
                f"{where}: the ranks' files are not in order: rank {rank} holds what belongs before what "
                f"rank {other} holds",
                hint=_HINT,
            )
    world = max(map(len, once.values()), default=1)
    return all((rank, rank + 1) in before for rank in range(world - 1))


def _holding(numels: Sequence[int]) -> list[int]:
    return [rank for rank, count in enumerate(numels) if count]


def _siblings(layout: ModelLayout, pieces: Mapping[str, Sequence[int]]) -> Iterable[list[str]]:
    """The parameters of each module itself, in their order: whatever was wrapped, they are in one unit."""
    by_module: dict[str, list[str]] = {}
    for spec in layout.unique_parameters():
        if spec.fqn in pieces:
            by_module.setdefault(spec.module, []).append(spec.fqn)
    return by_module.values()
