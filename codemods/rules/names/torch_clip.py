"""`torch.nn.utils.clip_grad_norm_` on the parameters of a sharded model.

Source: `torch/nn/utils/clip_grad.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.rule import (
    Finding,
    Holding,
    Maybe,
    Module,
    No,
    Project,
    Safety,
    argument,
    code,
    finding,
    is_behind_branch_that_shards,
    is_result_used,
    is_where_not_instance,
    is_where_other_branch_shards,
    replace,
    rule,
)

_FUNCTIONS = ("torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad.clip_grad_norm_")


@rule("torch.nn.utils.clip_grad_norm_", {"FM302": "PyTorch's own clipping on sharded parameters"})
def torch_clip(project: Project) -> Iterator[Finding]:
    """`torch.nn.utils.clip_grad_norm_(model.parameters(), c)` on a sharded model changes its meaning.

    On FSDP1 parameters it clipped each rank by the norm of what that rank held, a number that differs per
    rank. On FSDP2 parameters it clips by the norm of the whole gradient. The new behaviour is what was
    meant, but training curves change, so a person should know. With `--unsafe-fixes` a used result gets
    `.full_tensor()`, because it is a DTensor now; nothing else has to be done."""
    for name in _FUNCTIONS:
        for module, call in project.calls_of(name):
            model, holding = _owner(project, module, argument(call, 0, "parameters"))
            if model is None or isinstance(holding, No):
                continue
            text = ast.unparse(model)
            if is_where_not_instance(module, call, text) or _already_full(module, call):
                continue
            if is_where_other_branch_shards(module, call, text) or is_behind_branch_that_shards(
                module, call, text
            ):
                continue
            edits = []
            if is_result_used(module, call):
                edits = [replace(module, call, code(module, "{call}.full_tensor()", call=call))]
            yield finding(
                module,
                call,
                "FM302",
                "FSDP1 clipped every rank by its own part of the gradient here; FSDP2 clips by the "
                "whole gradient's norm",
                remedy="expect other numbers than before (these are right)"
                + (" and add `.full_tensor()` to the norm" if edits else ""),
                safety=Safety.UNSAFE if edits else Safety.MANUAL,
                edits=edits,
                is_note=isinstance(holding, Maybe) and not edits,
            )


def _owner(project: Project, module: Module, given: ast.expr | None) -> tuple[ast.expr | None, Holding]:
    """The sharded model whose parameters are given, if there is one."""
    for model in project.links.parameters.iterated(module, given) if given is not None else ():
        holding = project.sharded(module, model)
        if not isinstance(holding, No):
            return model, holding
    return None, No()


def _already_full(module: Module, call: ast.Call) -> bool:
    parent = module.parent(call)
    return isinstance(parent, ast.Attribute) and parent.attr == "full_tensor"
