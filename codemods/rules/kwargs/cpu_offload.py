"""`cpu_offload`. Source: `torch.distributed.fsdp.api.CPUOffload`, `CPUOffloadPolicy`."""

from __future__ import annotations

import ast

from codemods.offload_backends import offload_backends
from codemods.rule import (
    CallValue,
    Finding,
    Literal,
    Value,
    code,
    options,
)
from codemods.shard_call import Argument, Inline, Translation, keyword, local_assignment


@keyword("cpu_offload", {"FM113": "CPU offload needs a process group with a backend for CPU tensors"})
def cpu_offload(given: Argument) -> Translation:
    """`cpu_offload=CPUOffload(offload_params=True)` becomes `offload_policy=CPUOffloadPolicy()` on every
    unit.

    `offload_params=False` and None are FSDP2's default and are not written. A flag decided at run time goes
    through the helper module.

    With offload FSDP2's parameters and gradients are DTensors on the CPU, and clipping or gathering them is a
    collective on CPU tensors; FSDP1 moved them to the GPU first. `init_process_group("nccl")` has no backend
    for that and becomes `init_process_group("cpu:gloo,cuda:nccl")`. A backend that is chosen elsewhere is
    left, with a note; so is "nccl" where the program asks `get_backend()` for its name.
    """
    value = given.value
    if isinstance(value, Literal) and value.value is None:
        return Translation(inline=Inline(), keep=False)
    if all(_is_off(option) for option in options(value)):
        backends: tuple[Finding, ...] = ()
    else:
        backends = tuple(offload_backends(given.project, given.site.module))
    assignment = local_assignment(given.module, given.node)
    visible = given.at_call and (isinstance(given.node, ast.Call) or assignment is not None)
    if (
        not isinstance(value, CallValue)
        or value.function.name != "torch.distributed.fsdp.CPUOffload"
        or not visible
    ):
        return Translation(inline=None, findings=backends)
    flag = (
        value.arguments[0] if value.arguments else value.keywords.get("offload_params", ast.Constant(False))
    )
    if value.spreads or not isinstance(flag, ast.Constant):
        return Translation(inline=None, findings=backends)
    consumed = (assignment,) if assignment else ()
    if not flag.value:
        return Translation(inline=Inline(consumed=consumed), keep=assignment is not None)
    policy = code(None, "{torch.distributed.fsdp.CPUOffloadPolicy}()")
    return Translation(inline=Inline(every={"offload_policy": policy}, consumed=consumed), findings=backends)


def _is_off(value: Value) -> bool:
    """Whether a value of `cpu_offload` is None or says `offload_params=False`."""
    if isinstance(value, CallValue) and value.function.name == "torch.distributed.fsdp.CPUOffload":
        told = value.arguments[0] if value.arguments else value.keywords.get("offload_params")
        is_false = told is None or (isinstance(told, ast.Constant) and told.value is False)
        return is_false and not value.spreads
    return isinstance(value, Literal) and value.value is None
