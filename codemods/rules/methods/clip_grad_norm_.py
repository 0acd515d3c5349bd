"""`model.clip_grad_norm_(max_norm, norm_type)`.

Source: `FullyShardedDataParallel.clip_grad_norm_`, `torch/nn/utils/clip_grad.py`.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

from codemods.ignored_parameters import ignored_arguments
from codemods.rule import (
    Finding,
    Literal,
    MethodCall,
    Module,
    No,
    Project,
    Safety,
    argument,
    can_only_be_sharded,
    code,
    finding,
    is_result_used,
    options,
    replace,
    rule,
)
from codemods.tensor_parallel import is_tensor_parallel
from codemods.torch_names import FSDP

LOW_PRECISION = ("bfloat16", "float16", "half")
_CASTS = ("bfloat16", "half")
"""Methods of modules that convert their parameters."""


@rule(
    "clip_grad_norm_",
    {"FM301": "`clip_grad_norm_` of the FSDP1 wrapper"},
)
def clip_grad_norm_(project: Project) -> Iterator[Finding]:
    """`model.clip_grad_norm_(c)` becomes `torch.nn.utils.clip_grad_norm_(model.parameters(), c)`.

    FSDP1's wrapper had its own clipping because each rank held a part of a flat parameter. Under FSDP2 the
    gradients are DTensors and PyTorch's own function computes the global norm. What it returns is a DTensor
    too: where the norm is used, `.full_tensor()` makes it the plain tensor that FSDP1 gave, so that
    `f"{norm:.3f}"`, `dist.all_reduce(norm)` and sums with plain tensors keep working.

        norm = model.clip_grad_norm_(1.0)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()

    FSDP1 accumulates the norm in float32 whatever the dtype of the gradients; PyTorch's function does so in
    their own dtype, and it refuses parameters on different meshes or a mixture of plain and sharded ones.
    Where the code shows low-precision parameters or modules left out of sharding, a helper function with
    FSDP1's arithmetic is used instead. So it is where layers are tensor parallel (`parallelize_module`): the
    helper sums over all meshes, where FSDP1 left the parts of other tensor-parallel ranks out of the norm,
    and each of them clipped by another. So it is for the infinity norm: PyTorch's function cannot take it of
    an empty shard, and a rank has one of every parameter with fewer rows than there are ranks. Otherwise the
    norm agrees to the last digit or two of float32 (the order of additions differs)."""
    for call, on_class in _calls(project):
        max_norm = argument(call.node, int(on_class), "max_norm")
        if max_norm is None:
            continue
        if not isinstance(project.sharded(call.module, call.receiver), No):
            yield _translated(project, call, max_norm, argument(call.node, 1 + on_class, "norm_type"))
            if is_tensor_parallel(project, call.module.path):
                yield _other_norm(call)
            continue
        is_list = ".parameters(" in ast.unparse(max_norm)
        name = "clip_grad_norm_"
        if on_class or (not is_list and can_only_be_sharded(project, call.module, call.receiver, name)):
            yield finding(
                call.module,
                call.node,
                "FM301",
                "only FSDP1's wrapper has this method, but where this object comes from was not found",
                remedy="if this is the sharded model: "
                "`torch.nn.utils.clip_grad_norm_(model.parameters(), c)`",
            )


def _translated(
    project: Project, call: MethodCall, max_norm: ast.expr, norm_type: ast.expr | None
) -> Finding:
    module = call.module
    arguments = code(module, "{model}.parameters(), {c}", model=call.receiver, c=max_norm)
    if norm_type is not None:
        arguments = (*arguments, *code(module, ", norm_type={p}", p=norm_type))
    is_infinite = norm_type is not None and may_be_infinite(project, module, norm_type)
    if is_infinite or needs_helper(project, module.path):
        new = code(module, "{helper.clip_grad_norm_}({arguments})", arguments=arguments)
        message = (
            "gradients are clipped by a helper function: PyTorch's own cannot take the infinity norm "
            "of a rank's empty shard"
            if is_infinite
            else "gradients are clipped with FSDP1's arithmetic: they can be of low precision, partly "
            "unsharded, or on several meshes"
        )
    else:
        message = "gradients are clipped by PyTorch's own function on the sharded parameters"
        new = code(module, "{torch.nn.utils.clip_grad_norm_}({arguments})", arguments=arguments)
        if is_result_used(module, call.node):
            new = (*new, ".full_tensor()")
    edits = [replace(module, call.node, new)]
    return finding(module, call.node, "FM301", message, safety=Safety.SAFE, edits=edits)


def _other_norm(call: MethodCall) -> Finding:
    return finding(
        call.module,
        call.node,
        "FM301",
        "FSDP1 left the parts of other tensor-parallel ranks out of the norm, and each of them clipped by "
        "another; now it is the whole gradient's: expect other numbers than before where layers are tensor "
        "parallel (these are right)",
        is_note=True,
    )


def _calls(project: Project) -> Iterator[tuple[MethodCall, bool]]:
    """The model as receiver, and whether it is an argument: `FSDP.clip_grad_norm_(model, c)`."""
    for call in project.method_calls("clip_grad_norm_"):
        symbol = project.resolve(call.module, call.receiver)
        if symbol is None or symbol.name != FSDP:
            yield call, False
        elif call.node.args and not isinstance(call.node.args[0], ast.Starred):
            yield MethodCall(call.module, call.node, call.node.args[0]), True


def may_be_infinite(project: Project, module: Module, norm_type: ast.expr) -> bool:
    """Whether anything but a finite number can be the kind of norm."""
    return not all(
        isinstance(value, Literal) and isinstance(value.value, int | float) and math.isfinite(value.value)
        for value in options(project.evaluate(module, norm_type))
    )


def needs_helper(project: Project, path: str) -> bool:
    """Whether gradients can be of low precision, or parameters of several meshes or of none."""
    if is_tensor_parallel(project, path):
        return True
    for site in project.wraps:
        ignored, unknown = ignored_arguments(project, site)
        # Keywords that come from elsewhere are known by their names, of a dataclass's fields say.
        if ignored or (unknown and project.reading("ignored_modules", "ignored_states")):
            return True
        if _turns_low_precision(site.module):
            return True
    module = project.modules.get(path)
    return module is not None and _turns_low_precision(module)


def _turns_low_precision(module: Module) -> bool:
    """Whether a module is converted: `.to(torch.bfloat16)`, `.bfloat16()`, `.half()`, `torch_dtype=...`."""
    for node in module.calls():
        if isinstance(node.func, ast.Attribute) and node.func.attr in _CASTS and not node.args:
            return True
        values = [
            k.value for k in node.keywords if k.arg in ("dtype", "torch_dtype", "keep_low_precision_grads")
        ]
        if isinstance(node.func, ast.Attribute) and node.func.attr == "to":
            values += node.args
        for value in values:
            if isinstance(value, ast.Constant) and value.value is True:
                return True
            if isinstance(value, ast.Attribute) and value.attr in LOW_PRECISION:
                return True
    return False
