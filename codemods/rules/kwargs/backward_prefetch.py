"""`backward_prefetch`."""

from __future__ import annotations

from codemods.rule import Literal, Named, finding, options
from codemods.shard_call import Argument, Inline, Translation, keyword


@keyword("backward_prefetch", {"FM115": "`backward_prefetch` other than BACKWARD_PRE is dropped"})
def backward_prefetch(argument: Argument) -> Translation:
    """`backward_prefetch` is dropped: FSDP2 prefetches as BACKWARD_PRE did. Numerics do not depend on it.

    BACKWARD_POST and None held one unit less in memory at the peak;
    `unit.set_modules_to_backward_prefetch([unit])` on every unit turns the prefetch off.
    """
    usual = all(
        isinstance(v, Named) and v.symbol.name.endswith(".BACKWARD_PRE") for v in options(argument.value)
    )
    if usual or not any(isinstance(v, Named | Literal) for v in options(argument.value)):
        return Translation(inline=Inline(), keep=False)
    note = finding(
        argument.module,
        argument.node,
        "FM115",
        "FSDP2 always prefetches as BACKWARD_PRE did, which can hold one more unit in memory",
        remedy="call set_modules_to_backward_prefetch([unit]) on each unit to turn prefetching off",
        is_note=True,
    )
    return Translation(inline=Inline(), keep=False, findings=(note,))
