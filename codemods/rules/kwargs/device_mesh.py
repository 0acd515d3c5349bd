"""`device_mesh`. Source: `torch.distributed.device_mesh.init_device_mesh`, `fully_shard(mesh=)`."""

from __future__ import annotations

from codemods.rule import Literal
from codemods.shard_call import Argument, Inline, Translation, keyword


@keyword("device_mesh", {"FM116": "a 2-D mesh needs names"})
def device_mesh(argument: Argument) -> Translation:
    """`device_mesh` becomes `mesh=`; a 2-D mesh is (replicate, shard) in both.

    `fully_shard` refuses a 2-D mesh without names, so `mesh_dim_names=("replicate", "shard")` is added where such a
    mesh is built, in whatever function or module that is.
    """
    if isinstance(argument.value, Literal) and argument.value.value is None:
        return Translation(inline=Inline(), keep=False)
    text = argument.kept()
    if text is None:
        return Translation(inline=None)
    return Translation(inline=Inline(every={"mesh": text}))
