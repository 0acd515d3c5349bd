"""One value per rank put together: ShardedTensor shards, DTensor shards, replicated tensors, equal numbers.

Source: `torch/distributed/_shard/sharded_tensor/` (shards carry offsets) and
`torch/distributed/tensor/placement_types.py` (`Shard.local_shard_size_and_offset`: `torch.chunk`'s sizes).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from checkpoint_convert.errors import IncompleteError, UnreadableError, UnsupportedError
from checkpoint_convert.model import DType, TensorSource, numel
from checkpoint_convert.optim_state import number_of
from checkpoint_convert.same_values import differing_hint, same_elements
from checkpoint_convert.tensor_sources import Box, BoxTensor, ConcatTensor
from checkpoint_convert.torch_objects import DTensorOnRank, ShardedTensorOnRank


@dataclass(frozen=True, slots=True, eq=False)
class OnRanks:
    """One key's values by rank, in rank order; ranks that lack the key are left out."""

    name: str
    ranks: tuple[int, ...]
    values: tuple[object, ...]


def merge(found: OnRanks, where: str) -> object:
    """The whole value of shards; the first rank's of anything else, which the ranks may disagree on.

    Raises:
        IncompleteError: a rank's shard is missing, or replicas of it differ.
        UnsupportedError: sharded in a way FSDP1 does not shard.
    """
    first = found.values[0]
    label = f"{where}: {found.name}"
    if isinstance(first, ShardedTensorOnRank):
        return _merge_sharded(_all_of(found, ShardedTensorOnRank, label), label)
    if isinstance(first, DTensorOnRank):
        return _merge_dtensor(found, _all_of(found, DTensorOnRank, label), label)
    return first


def _all_of(found: OnRanks, kind: type, label: str) -> list[object]:
    for rank, value in zip(found.ranks, found.values, strict=True):
        if not isinstance(value, kind):
            raise IncompleteError(
                f"{label} is sharded on rank {found.ranks[0]} and not on rank {rank}",
                hint="Give the files of one save only.",
            )
    return list(found.values)


def _merge_sharded(values: Sequence[object], label: str) -> TensorSource:
    sharded = cast("Sequence[ShardedTensorOnRank]", values)
    first = sharded[0]
    pieces: dict[tuple[int, ...], TensorSource] = {}
    for value in sharded:
        if (value.shape, value.dtype, value.world_size) != (first.shape, first.dtype, first.world_size):
            raise IncompleteError(
                f"{label} has size {first.shape} on one rank and {value.shape} on another",
                hint="The files are of different runs. Give the files of one save only.",
            )
        for box, tensor in value.local:
            if tensor.shape != box.sizes:
                raise UnreadableError(
                    f"{label}: a shard of size {tensor.shape} should have size {box.sizes}",
                    hint="The file is damaged or forged.",
                )
            _add_piece(pieces, box.offsets, tensor, label)
    missing = [box for box in first.boxes if numel(box.sizes) and box.offsets not in pieces]
    if missing:
        whose = sorted({box.rank for box in missing if box.rank is not None})
        raise IncompleteError(
            f"{label}: the shard at {missing[0].offsets} is missing"
            + (f"; rank {', '.join(map(str, whose))} held it" if whose else ""),
            hint="Give the files of all ranks: the directory, or a quoted glob.",
        )
    return put_together(pieces, first.dtype, first.shape, label)


def _add_piece(
    pieces: dict[tuple[int, ...], TensorSource], offsets: tuple[int, ...], piece: TensorSource, label: str
) -> None:
    """Take a piece; where a replica brought it already, the two must be equal."""
    known = pieces.setdefault(offsets, piece)
    if known is not piece and not same_elements(known, piece):
        raise IncompleteError(
            f"{label}: two ranks hold different elements for the same shard at {offsets}",
            hint="Replicas of a hybrid-sharded run must be equal; are the files of one save?",
        )


def put_together(
    pieces: Mapping[tuple[int, ...], TensorSource], dtype: DType, shape: tuple[int, ...], label: str
) -> TensorSource:
    """A tensor from its pieces by offset; a plain concatenation wherever that is enough."""
    only = next(iter(pieces.values())) if len(pieces) == 1 else None
    if only is not None and only.shape == shape and only.dtype is dtype and not any(next(iter(pieces))):
        return only
    try:
        boxes = [Box(offsets, piece) for offsets, piece in sorted(pieces.items())]
        whole = BoxTensor(boxes, dtype, shape)
    except ValueError as error:
        raise IncompleteError(
            f"{label}: {error}", hint="A rank's file is missing or belongs to another run."
        ) from None
    if all(piece.shape[1:] == shape[1:] for piece in pieces.values()):
        return ConcatTensor([piece for _, piece in sorted(pieces.items())], dtype, shape)
    return whole


def _merge_dtensor(found: OnRanks, values: Sequence[object], label: str) -> TensorSource:
    tensors = cast("Sequence[DTensorOnRank]", values)
    first = tensors[0]
    pieces: dict[tuple[int, ...], TensorSource] = {}
    for rank, value in zip(found.ranks, tensors, strict=True):
        if (value.shape, value.dtype, value.placements) != (first.shape, first.dtype, first.placements):
            raise IncompleteError(
                f"{label} is of size {first.shape} on rank {found.ranks[0]} and {value.shape} on rank {rank}",
                hint="The files are of different runs. Give the files of one save only.",
            )
        mesh = value.mesh_shape or (len(found.ranks),)
        if len(mesh) != len(value.placements) or min(mesh) < 1:
            raise UnreadableError(
                f"{label}: is placed as {value.placements} on a mesh of size {mesh}",
                hint="Save it with DCP, or as a full state dict, in the job that can load it.",
            )
        offsets, sizes = shard_box(value.shape, value.placements, mesh, _coordinate(value, mesh, rank), label)
        if value.local.shape != sizes:
            raise IncompleteError(
                f"{label}: rank {rank} holds a shard of size {value.local.shape} where {sizes} is due",
                hint="Is the file of this rank and of this run?",
            )
        if numel(sizes):
            _add_piece(pieces, offsets, value.local, label)
    return put_together(pieces, first.dtype, first.shape, label)


def _coordinate(value: DTensorOnRank, mesh: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """The rank's place in the mesh: as written, or by counting through the mesh."""
    if value.coordinate is not None and len(value.coordinate) == len(mesh):
        return value.coordinate
    place = []
    for size in reversed(mesh):
        rank, at = divmod(rank, size)
        place.append(at)
    return tuple(reversed(place))


def shard_box(
    shape: tuple[int, ...],
    placements: Sequence[int | str | None],
    mesh: Sequence[int],
    coordinate: Sequence[int],
    label: str,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Offsets and sizes of the shard at a mesh coordinate, `torch.chunk` in each sharded dimension.

    Raises:
        UnsupportedError: one dimension sharded over two mesh dimensions, strided or partial placements.
    """
    offsets, sizes = [0] * len(shape), list(shape)
    sharded: set[int] = set()
    for placement, parts, at in zip(placements, mesh, coordinate, strict=True):
        if placement is None:
            continue
        if isinstance(placement, str) or placement in sharded or placement >= len(shape):
            raise UnsupportedError(
                f"{label} is placed as {tuple(placements)}, which FSDP1 alone does not write",
                hint="Save it with DCP, or as a full state dict, in the job that can load it.",
            )
        sharded.add(placement)
        chunk = -(-shape[placement] // parts)
        offsets[placement] = min(at * chunk, shape[placement])
        sizes[placement] = min(chunk, shape[placement] - offsets[placement])
    return tuple(offsets), tuple(sizes)


def equal_numbers(found: OnRanks, where: str) -> None:
    """Hold a scalar against its values on the other ranks.

    Raises:
        IncompleteError: two ranks differ.
    """
    first = number_of(found.values[0])
    for rank, value in zip(found.ranks, found.values, strict=True):
        number = number_of(value)
        if number != first and not (number != number and first != first):
            raise IncompleteError(
                f"{where}: {found.name} is {first} on rank {found.ranks[0]} and {number} on rank {rank}",
                hint=differing_hint(found.name),
            )
