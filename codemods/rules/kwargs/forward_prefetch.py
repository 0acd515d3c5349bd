"""`forward_prefetch`. Source: `FSDPModule.set_modules_to_forward_prefetch`."""

from __future__ import annotations

from codemods.rule import Literal
from codemods.shard_call import Argument, Inline, Translation, keyword


@keyword("forward_prefetch", {})
def forward_prefetch(argument: Argument) -> Translation:
    """`forward_prefetch=True` becomes `set_modules_to_forward_prefetch` along the units in order; False is
    the default.

    FSDP1 used the order recorded in the first iteration; the order of the modules is the same for models that
    run their blocks one after the other.
    """
    if isinstance(argument.value, Literal) and not argument.value.value:
        return Translation(inline=Inline(), keep=False)
    return Translation(inline=None)
