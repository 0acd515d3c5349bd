"""`ShardedGradScaler`.

Source: `torch/distributed/fsdp/sharded_grad_scaler.py`, `torch/amp/grad_scaler.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.ignored_parameters import ignores_any
from codemods.rule import (
    Edit,
    Finding,
    Module,
    Project,
    Safety,
    code,
    delete_argument,
    finding,
    insert_text,
    replace,
    rule,
)

NAME = "torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler"
# ShardedGradScaler's order; torch.amp.GradScaler has growth_factor before backoff_factor and no
# process_group.
_PARAMETERS = (
    "device",
    "init_scale",
    "backoff_factor",
    "growth_factor",
    "growth_interval",
    "enabled",
    "process_group",
)


@rule("ShardedGradScaler", {"FM503": "FSDP1's gradient scaler"})
def sharded_grad_scaler(project: Project) -> Iterator[Finding]:
    """`ShardedGradScaler(...)` becomes `torch.amp.GradScaler(...)`.

    The gradients of an FSDP2 model are DTensors: the plain scaler's test for infinities is reduced over all
    ranks by itself, so that all of them skip the same steps. `process_group` goes; positional arguments get
    names, because the two classes order them differently.

    Where parameters are ignored by a wrap and trained, their gradients are plain, and the scaler stops at an
    optimizer that has both kinds: give them an optimizer of their own, and see that all ranks skip the same
    steps of it."""
    is_mixed = any(ignores_any(project, site) for site in project.wraps)
    for use in project.uses(NAME):
        call = use.module.parent(use.node)
        edits = [replace(use.module, use.node, code(None, "{torch.amp.GradScaler}"))]
        if isinstance(call, ast.Call) and call.func is use.node:
            edits += _arguments(use.module, call)
        yield finding(
            use.module,
            use.node,
            "FM503",
            "the plain gradient scaler finds infinities on every rank",
            safety=Safety.SAFE,
            edits=edits,
        )
        if is_mixed:
            yield finding(
                use.module,
                use.node,
                "FM503",
                "where ignored parameters are trained, the plain scaler stops at an optimizer with sharded "
                "and plain gradients",
                remedy="give them an optimizer of their own; infinities in it are found on their rank alone",
                is_note=True,
            )


def _arguments(module: Module, call: ast.Call) -> list[Edit]:
    edits: list[Edit] = []
    for position, argument in enumerate(call.args):
        # Before torch 2.3 there was no `device`: a number in the first place is the scale.
        shift = 1 if _is_number(call.args[0]) else 0
        name = _PARAMETERS[min(position + shift, len(_PARAMETERS) - 1)]
        if name == "process_group":
            edits.append(delete_argument(module, call, argument))
        elif name != "device":
            edits.append(insert_text(module, argument, f"{name}="))
    edits += [delete_argument(module, call, k) for k in call.keywords if k.arg == "process_group"]
    return edits


def _is_number(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_number(node.left)
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)
