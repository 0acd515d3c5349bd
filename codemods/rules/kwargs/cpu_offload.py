"""`cpu_offload`. Source: `torch.distributed.fsdp.api.CPUOffload`, `CPUOffloadPolicy`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.analysis.spoken_names import is_where_unsharded
from codemods.plain_tests import is_plain_test
from codemods.rule import (
    CallValue,
    Finding,
    Literal,
    Module,
    Project,
    Safety,
    Value,
    argument,
    code,
    finding,
    may_be_ddp,
    options,
    replace,
)
from codemods.shard_call import Argument, Inline, Translation, keyword, local_assignment

_INIT = "torch.distributed.init_process_group"
_BOTH = '"cpu:gloo,cuda:nccl"'


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
        backends = tuple(_backends(given.project, given.site.module))
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


def _written(module: Module, given: ast.expr | None) -> str:
    """A backend as it is written, or what the last assignment to its name in the function says."""
    if not isinstance(given, ast.Name):
        return ast.unparse(given) if given is not None else ""
    function, end = module.function(given), module.span(given).start
    told = [
        node.value
        for node in ast.walk(function or module.tree)
        if isinstance(node, ast.Assign)
        and module.span(node).end <= end
        and any(isinstance(t, ast.Name) and t.id == given.id for t in node.targets)
    ]
    return ast.unparse(max(told, key=lambda value: module.span(value).start)) if told else ""


def _can_be_with(project: Project, module: Module, call: ast.Call, home: Module) -> bool:
    """Whether a process group can be that of a sharded model.

    Not that of another engine, nor of a script that wraps in DistributedDataParallel and does not speak of
    FSDP. Workers of two classes are processes of their own: a third file that starts both does not make them
    one program.
    """
    if is_where_unsharded(module, call) or (may_be_ddp(module) and "fsdp" not in module.text.lower()):
        return False
    return module.class_of(call) is None or project.is_imported(module.path, home.path)


def _is_off(value: Value) -> bool:
    """Whether a value of `cpu_offload` is None or says `offload_params=False`."""
    if isinstance(value, CallValue) and value.function.name == "torch.distributed.fsdp.CPUOffload":
        told = value.arguments[0] if value.arguments else value.keywords.get("offload_params")
        is_false = told is None or (isinstance(told, ast.Constant) and told.value is False)
        return is_false and not value.spreads
    return isinstance(value, Literal) and value.value is None


def _backends(project: Project, home: Module) -> Iterator[Finding]:
    """What is to be done about the process groups of the programs that a wrap is part of."""
    project.reading("init_process_group", "get_backend")
    is_asked_for = any(True for _ in project.calls_of("torch.distributed.get_backend"))
    for module, call in project.calls_of(_INIT):
        if not project.is_one_program(module.path, home.path) or is_plain_test(module):
            continue
        given = argument(call, 0, "backend")
        if given is None and not call.args and all(k.arg is not None for k in call.keywords):
            continue  # torch makes a backend for each kind of device
        told = project.evaluate(module, given) if given is not None else None
        name = told.value if isinstance(told, Literal) else None
        if isinstance(name, str) and name != "nccl":
            continue
        if "cpu:" in _written(module, given) or not _can_be_with(project, module, call, home):
            continue
        if isinstance(given, ast.Constant) and not is_asked_for:
            yield finding(
                module,
                call,
                "FM113",
                "offloaded parameters are gathered and clipped on the CPU, which needs a backend for it",
                safety=Safety.SAFE,
                edits=[replace(module, given, (_BOTH,))],
            )
        else:
            yield finding(
                module,
                call,
                "FM113",
                f'with CPU offload this process group needs a backend for CPU tensors: {_BOTH}, not "nccl"',
                is_note=True,
            )
