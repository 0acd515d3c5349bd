"""`device_id`. Source: `torch.distributed.fsdp._init_utils._get_device_from_device_id`, `fully_shard`'s mesh
device."""

from __future__ import annotations

import ast

from codemods.rule import CallValue, code
from codemods.shard_call import Argument, Inline, Translation, keyword, sibling


@keyword("device_id", {})
def device_id(argument: Argument) -> Translation:
    """`device_id` becomes the current device.

    `fully_shard` moves parameters to the current device of the mesh's type. Where the program calls
    `torch.cuda.set_device` itself, the argument is dropped; where it relied on `device_id`, the call is
    added. An explicit CPU device becomes a CPU mesh. A device known at run time only goes through the helper
    module.
    """
    value, node = argument.value, argument.node
    if isinstance(value, CallValue) and value.function.name == "torch.cuda.current_device":
        return Translation(inline=Inline())
    if isinstance(value, CallValue) and value.function.name == "torch.device":
        return _explicit(argument, value)
    if not argument.at_call or not _is_index(node):
        return Translation(inline=None)
    if "set_device" in argument.project.mentions:
        return Translation(inline=Inline())
    text = argument.kept()
    assert text is not None
    return Translation(inline=Inline(before=(code(None, "{torch}.cuda.set_device({d})", d=text),)))


def _explicit(argument: Argument, value: CallValue) -> Translation:
    kind = value.arguments[0] if value.arguments else None
    if not isinstance(kind, ast.Constant) or not isinstance(kind.value, str):
        return Translation(inline=None)
    if kind.value == "cpu" and sibling(argument, "device_mesh") is not None:
        return Translation(inline=Inline())
    if kind.value == "cpu":
        mesh = code(
            None,
            '{torch.distributed.device_mesh.init_device_mesh}("cpu", '
            "({torch.distributed}.get_world_size(),))",
        )
        return Translation(inline=Inline(shared={"mesh": mesh}))
    if "set_device" in argument.project.mentions:
        return Translation(inline=Inline())
    text = argument.kept()
    if text is None:
        return Translation(inline=None)
    return Translation(inline=Inline(before=(code(None, "{torch}.cuda.set_device({d})", d=text),)))


def _is_index(node: ast.expr) -> bool:
    """Whether an expression is a device number by the look of it: `local_rank`, `int(...)`, `rank % n`."""
    match node:
        case ast.Constant():
            return isinstance(node.value, int)
        case ast.BinOp():
            return isinstance(node.op, ast.Mod)
        case ast.Name():
            return "rank" in node.id.lower() or node.id.lower() in ("gpu", "gpu_id")
        case ast.Attribute():
            return "rank" in node.attr.lower() or node.attr.lower() in ("gpu", "gpu_id")
        case ast.Call():
            name = ast.unparse(node.func)
            return name == "int" or "rank" in name.lower()
    return False
