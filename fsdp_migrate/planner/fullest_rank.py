"""The rank that holds most of what is trained; pure.

Under FSDP2 that is rank 0, which gets the larger part of every parameter. FSDP1 cuts a unit without regard to
its parameters: where some are frozen, a rank may hold those alone, and no optimizer state at all.
"""

from __future__ import annotations

from collections.abc import Sequence

from checkpoint_convert.flat_param import Sharding, lay_out, span_on_rank, unit_members
from checkpoint_convert.layout import ModelLayout
from checkpoint_convert.model import DType
from fsdp_migrate.planner.model import Settings

_DTYPES = {dtype.torch_name: dtype for dtype in DType}


def fullest_rank(layout: ModelLayout, prefixes: Sequence[str], settings: Settings) -> int:
    """Of an FSDP1 job with use_orig_params.

    Args:
        prefixes: FQNs of the units, the root not among them.
    """
    computed = _DTYPES[settings.param_dtype].itemsize if settings.param_dtype else None
    sharding = Sharding(settings.shard, aligned=True, compute_itemsize=computed)
    trained = [0] * settings.shard
    for prefix, members in unit_members(layout, prefixes, use_orig_params=True).items():
        dtype = _DTYPES[settings.dtype] if settings.dtype else members[0].dtype
        unit = lay_out(prefix, members, dtype, sharding)
        for piece in unit.pieces:
            if piece.spec.requires_grad and piece.spec.numel:
                for rank in range(piece.offset // unit.shard, (piece.stop - 1) // unit.shard + 1):
                    start, stop = span_on_rank(piece.offset, piece.stop, unit.shard, rank)
                    trained[rank] += stop - start
    return trained.index(max(trained))
