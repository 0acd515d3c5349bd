"""`cpu_offload`. Source: `torch.distributed.fsdp.api.CPUOffload`, `CPUOffloadPolicy`."""

from __future__ import annotations

import ast

from codemods.rule import CallValue, Literal, code
from codemods.shard_call import Argument, Inline, Translation, keyword, local_assignment


@keyword("cpu_offload", {"FM113": "`cpu_offload` cannot be followed"})
def cpu_offload(argument: Argument) -> Translation:
    """`cpu_offload=CPUOffload(offload_params=True)` becomes `offload_policy=CPUOffloadPolicy()` on every
    unit.

    `offload_params=False` and None are FSDP2's default and are not written. A flag decided at run time goes
    through the helper module. Collectives on CPU tensors need a backend for them:
    `init_process_group("cpu:gloo,cuda:nccl")`.
    """
    value = argument.value
    if isinstance(value, Literal) and value.value is None:
        return Translation(inline=Inline(), keep=False)
    assignment = local_assignment(argument.module, argument.node)
    visible = argument.at_call and (isinstance(argument.node, ast.Call) or assignment is not None)
    if (
        not isinstance(value, CallValue)
        or value.function.name != "torch.distributed.fsdp.CPUOffload"
        or not visible
    ):
        return Translation(inline=None)
    flag = (
        value.arguments[0] if value.arguments else value.keywords.get("offload_params", ast.Constant(False))
    )
    if value.spreads or not isinstance(flag, ast.Constant):
        return Translation(inline=None)
    consumed = (assignment,) if assignment else ()
    if not flag.value:
        return Translation(inline=Inline(consumed=consumed), keep=assignment is not None)
    policy = code(None, "{torch.distributed.fsdp.CPUOffloadPolicy}()")
    return Translation(inline=Inline(every={"offload_policy": policy}, consumed=consumed))
