"""`FSDP.optim_state_dict_to_load(model, optimizer, state)` and its older forms.

Source: `FullyShardedDataParallel.optim_state_dict_to_load`, `.scatter_full_optim_state_dict`,
`.shard_full_optim_state_dict`, `.flatten_sharded_optim_state_dict`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.rule import (
    AtRunTime,
    Edit,
    Finding,
    Maybe,
    MethodCall,
    Module,
    Project,
    Refused,
    Safety,
    Sharded,
    Unknown,
    finding,
    in_force,
    load_sharded_optimizer,
    optim_loaded,
    resharded_before,
    rule,
    state_dict_block_around,
)

_LOADS = (
    "optim_state_dict_to_load",
    "scatter_full_optim_state_dict",
    "shard_full_optim_state_dict",
    "flatten_sharded_optim_state_dict",
)
_OLD_LOAD = "torch.distributed.checkpoint.optimizer.load_sharded_optimizer_state_dict"
_REMEDY = (
    "use `set_optimizer_state_dict(model, optimizer, state, options=...)` from "
    "`torch.distributed.checkpoint.state_dict`; "
    "it loads by itself, so the following `optimizer.load_state_dict` goes"
)


@rule(
    "optim_state_dict_to_load",
    {"FM405": "loading optimizer state in FSDP1's form"},
    where={b"load_sharded_optimizer_state_dict": b""},
)
def optim_state_dict_to_load(project: Project) -> Iterator[Finding]:
    """`FSDP.optim_state_dict_to_load(...)` and the `load_state_dict` after it become
    `set_optimizer_state_dict(...)`.

        state = FSDP.optim_state_dict_to_load(model, optimizer, saved)
        optimizer.load_state_dict(state)

        set_optimizer_state_dict(model, optimizer, saved, options=StateDictOptions(full_state_dict=True))

    Before torch 2.1 the saved state was the first argument; which argument is the model is seen from what it
    holds. A full state that FSDP1 saved from flat parameters (`use_orig_params=False`) has one `step` tensor
    for all parameters of a unit, and FSDP2 would count it up once per parameter: where that can be, a helper
    takes the tensors apart first, and where a schedule can have left its `initial_lr` in the saved groups it
    gives that to the optimizer, without which torch stops. `scatter_full_optim_state_dict`,
    `shard_full_optim_state_dict`, `flatten_sharded_optim_state_dict` and `load_sharded_optimizer_state_dict`
    are translated the same way.
    """
    for use in project.static_calls(*_LOADS):
        model = _model(project, use)
        told = in_force(project, use.module, use.node, model) if model is not None else None
        if told is None:
            block = state_dict_block_around(project, use.module, use.node, None)
            if block is None:
                why = "which argument is the model cannot be told: the order changed in torch 2.1"
                yield finding(use.module, use.node, "FM405", why, remedy=_REMEDY)
            continue
        if isinstance(told, Unknown):
            yield finding(use.module, use.node, "FM405", told.why, remedy=_REMEDY)
            continue
        if told.block is not None:
            continue
        setting = None if isinstance(told, AtRunTime) else told.setting
        edits = optim_loaded(project, use.module, use.node, setting)
        if isinstance(edits, Refused):
            yield finding(use.module, use.node, "FM405", edits.why, remedy=_REMEDY)
            continue
        yield _done(use.module, use.node, [*resharded_before(project, use.module, use.node, model), *edits])
    for module, call in project.calls_of(_OLD_LOAD):
        if state_dict_block_around(project, module, call, None) is not None:
            continue
        edits = load_sharded_optimizer(project, module, call)
        if isinstance(edits, Refused):
            yield finding(module, call, "FM405", edits.why, remedy=_REMEDY)
        else:
            yield _done(module, call, edits)


def _done(module: Module, call: ast.Call, edits: list[Edit]) -> Finding:
    return finding(
        module,
        call,
        "FM405",
        "optimizer state is loaded by the state dict functions of torch.distributed.checkpoint",
        safety=Safety.SAFE,
        edits=edits,
    )


def _model(project: Project, use: MethodCall) -> ast.expr | None:
    for keyword in use.node.keywords:
        if keyword.arg == "model":
            return keyword.value
    assert isinstance(use.node.func, ast.Attribute)
    if use.node.func.attr != "optim_state_dict_to_load" and len(use.node.args) > 1:
        return use.node.args[1]  # the state dict comes first
    for candidate in use.node.args[:2]:
        if isinstance(project.sharded(use.module, candidate), Sharded | Maybe):
            return candidate
    return use.node.args[0] if len(use.node.args) == 3 else None
