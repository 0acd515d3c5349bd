"""`process_group`. Source: `DeviceMesh.from_group`."""

from __future__ import annotations

from codemods.rule import Literal, Named
from codemods.shard_call import Argument, Inline, Translation, keyword


@keyword("process_group", {})
def process_group(argument: Argument) -> Translation:
    """`process_group` becomes the mesh of that group; a pair of groups (shard, replicate) a 2-D mesh.

    None and the default group are FSDP2's default. FSDP1's pair names the sharding group first; a mesh has
    the replicating dimension first.
    """
    value = argument.value
    if isinstance(value, Literal) and value.value is None:
        return Translation(inline=Inline(), keep=False)
    if isinstance(value, Named) and value.symbol.name in (
        "torch.distributed.group.WORLD",
        "torch.distributed.distributed_c10d.group.WORLD",
    ):
        return Translation(inline=Inline(), keep=False)
    return Translation(inline=None)
