"""One parameter out of flat elements: a stretch of them, or pieces of several ranks, in the shape it had."""

from __future__ import annotations

from collections.abc import Sequence

from checkpoint_convert.errors import LayoutError
from checkpoint_convert.flat_param import FlatPiece, flattened_in_memory_order
from checkpoint_convert.layout import ParameterSpec
from checkpoint_convert.model import TensorSource, numel
from checkpoint_convert.tensor_sources import ConcatTensor, SliceTensor, StridedTensor


def join_pieces(
    views: Sequence[TensorSource],
    spec: ParameterSpec | None,
    name: str,
    memory_order: bool | None,
    where: str,
) -> TensorSource:
    """A parameter from its pieces in rank order (use_orig_params=True).

    Raises:
        LayoutError: the layout has no such parameter, or one of another size.
    """
    if spec is not None:
        views = one_replica(views, spec.numel)
    held = sum(numel(view.shape) for view in views)
    if spec is None or spec.numel != held:
        wanted = "no such parameter" if spec is None else f"{spec.numel} elements, of shape {spec.shape}"
        raise LayoutError(
            f"{where}: {name} has {held} elements; the model has {wanted}",
            hint="Is it the model that was saved, in the same configuration?",
        )
    flat = ConcatTensor(views, views[0].dtype, (held,))
    return cut(flat, FlatPiece(spec, 0, (name,)), memory_order, where)


def one_replica(views: Sequence[TensorSource], count: int) -> Sequence[TensorSource]:
    """The first ranks that together hold `count` elements, if the others repeat them (hybrid sharding)."""
    held = sum(numel(view.shape) for view in views)
    copies = held // count if count and held % count == 0 else 1
    return views[: len(views) // copies] if len(views) % copies == 0 else views


def cut(flat: TensorSource, piece: FlatPiece, memory_order: bool | None, where: str) -> TensorSource:
    """One parameter of a flat one.

    Raises:
        LayoutError: its elements' order depends on the saver's torch, which is not known.
    """
    spec = piece.spec
    if not flattened_in_memory_order(spec) or memory_order is False:
        return SliceTensor(flat, piece.offset, spec.shape)
    if memory_order is None:
        raise LayoutError(
            f"{where}: {spec.fqn} is not contiguous (stride {spec.stride}); torch 2.6 and later flatten it "
            "in another order than earlier releases",
            hint="Say which torch wrote the files with --saver-torch 2.5 (or whichever it was).",
        )
    memory = SliceTensor(flat, piece.offset, (spec.numel,))
    return StridedTensor(memory, spec.shape, spec.stride)
