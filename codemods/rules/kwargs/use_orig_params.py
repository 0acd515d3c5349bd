"""`use_orig_params`."""

from __future__ import annotations

from codemods.shard_call import Argument, Inline, Translation, keyword


@keyword("use_orig_params", {})
def use_orig_params(argument: Argument) -> Translation:
    """`use_orig_params` is dropped: FSDP2 always shows the original parameters, under their names and in
    their shapes.

    Code that grouped parameters by name or by `ndim` after the wrap saw flat, one-dimensional parameters
    before and sees the real ones now, so weight-decay groups can change.
    """
    return Translation(inline=Inline(), keep=False)
