"""`device_mesh`. Source: `torch.distributed.device_mesh.init_device_mesh`, `fully_shard(mesh=)`."""

from __future__ import annotations

import ast

from codemods.rule import CallValue, Finding, Literal, Safety, append_argument, finding, options
from codemods.shard_call import Argument, Inline, Translation, keyword

_NAMES = 'mesh_dim_names=("replicate", "shard")'
_BUILDERS = ("torch.distributed.device_mesh.init_device_mesh", "torch.distributed.device_mesh.DeviceMesh")


@keyword("device_mesh", {"FM116": "a 2-D mesh is given names"})
def device_mesh(argument: Argument) -> Translation:
    """`device_mesh` becomes `mesh=`; a 2-D mesh is (replicate, shard) in both.

    `fully_shard` refuses a 2-D mesh without names, so `mesh_dim_names=("replicate", "shard")` is added where
    such a mesh is built, in whatever function or module that is.
    """
    if isinstance(argument.value, Literal) and argument.value.value is None:
        return Translation(inline=Inline(), keep=False)
    named = tuple(
        _with_names(value)
        for value in options(argument.value)
        if isinstance(value, CallValue) and _is_nameless(value)
    )
    text = argument.kept() if argument.at_call else None
    inline = Inline(every={"mesh": text}) if text is not None else None
    return Translation(inline=inline, findings=named)


def _is_nameless(value: CallValue) -> bool:
    if value.function.name not in _BUILDERS or "mesh_dim_names" in value.keywords or value.spreads:
        return False
    shape = value.arguments[1] if len(value.arguments) > 1 else value.keywords.get("mesh_shape")
    return isinstance(shape, ast.Tuple | ast.List) and len(shape.elts) == 2 and len(value.arguments) < 3


def _with_names(value: CallValue) -> Finding:
    module, call = value.origin.module, value.origin.node
    assert isinstance(call, ast.Call)
    return finding(
        module,
        call,
        "FM116",
        "`fully_shard` needs names for the dimensions of a 2-D mesh",
        safety=Safety.SAFE,
        edits=[append_argument(module, call, _NAMES)],
    )
