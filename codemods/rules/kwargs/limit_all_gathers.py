"""`limit_all_gathers`."""

from __future__ import annotations

from codemods.shard_call import Argument, Inline, Translation, keyword


@keyword("limit_all_gathers", {})
def limit_all_gathers(argument: Argument) -> Translation:
    """`limit_all_gathers` is dropped: FSDP2 needs no rate limit on the CPU side.

    FSDP1 held the CPU back so that it did not gather more units than fit into memory. FSDP2 frees memory in
    the order of the streams, so that there is nothing to limit; numerics never depended on it.
    """
    return Translation(inline=Inline(), keep=False)
