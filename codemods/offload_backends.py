"""Process groups of programs that offload parameters to the CPU: they need a backend for CPU tensors.

Source: `torch/distributed/distributed_c10d.py` (`init_process_group`, a backend for each kind of device).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.analysis.spoken_names import is_where_unsharded
from codemods.plain_tests import is_plain_test
from codemods.rule import (
    Finding,
    Literal,
    Module,
    Project,
    Safety,
    argument,
    finding,
    may_be_ddp,
    replace,
)

_INIT = "torch.distributed.init_process_group"
_BOTH = '"cpu:gloo,cuda:nccl"'


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
    if is_where_unsharded(module, call) or (may_be_ddp(module) and not module.says_fsdp):
        return False
    return module.class_of(call) is None or project.is_imported(module.path, home.path)


def offload_backends(project: Project, home: Module) -> Iterator[Finding]:
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
