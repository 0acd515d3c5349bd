"""`limit_all_gathers`."""

from __future__ import annotations

from codemods.shard_call import Argument, Inline, Translation, keyword


@keyword("limit_all_gathers", {})
def limit_all_gathers(argument: Argument) -> Translation:
    """`limit_all_gathers` is dropped: FSDP2's memory management needs no rate limit on the CPU side."""
    return Translation(inline=Inline(), keep=False)
