"""`FSDP.optim_state_dict(model, optimizer)`, `full_optim_state_dict`, `sharded_optim_state_dict`.

Source: `FullyShardedDataParallel.optim_state_dict` and its older forms.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.rule import (
    AtRunTime,
    Edit,
    Finding,
    MethodCall,
    Project,
    Ref,
    Refused,
    Safety,
    Unknown,
    argument,
    finding,
    in_force,
    optim_saved,
    resharded_before,
    rule,
)

_REMEDY = (
    "use `get_optimizer_state_dict(model, optimizer, options=...)` from "
    "`torch.distributed.checkpoint.state_dict`; "
    "its layout is the same, by parameter name"
)


@rule("optim_state_dict", {"FM404": "optimizer state in FSDP1's form"})
def optim_state_dict(project: Project) -> Iterator[Finding]:
    """`FSDP.optim_state_dict(model, optimizer)` becomes `get_optimizer_state_dict(model, optimizer, ...)`.

    Both give state by parameter name. What FSDP1 gave by default, whole tensors on the CPU of every rank,
    no option says: where the result is only used under `if rank == 0:`, rank 0 alone gets it, else a helper
    brings it to every rank.

        moments = FSDP.optim_state_dict(model, optimizer)
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        moments = get_optimizer_state_dict(model, optimizer, options=options)

    Where the program evaluates the model and its own state dict was not taken just before, the units are
    resharded first: the root would still show temporary parameters, which the optimizer does not have.

    `FSDP.full_optim_state_dict` is the same with whole tensors on rank 0, `FSDP.sharded_optim_state_dict`
    with shards. `FSDP.rekey_optim_state_dict` between names and numbers is a function of the helper module;
    only with `optim_input` it is left to a person."""
    for use in project.static_calls("optim_state_dict", "full_optim_state_dict", "sharded_optim_state_dict"):
        model = argument(use.node, 0, "model")
        told = (
            in_force(project, use.module, use.node, model)
            if model is not None
            else Unknown("no model is given")
        )
        if isinstance(told, Unknown):
            yield finding(use.module, use.node, "FM404", told.why, remedy=_REMEDY)
            continue
        if told.block is not None:
            continue
        setting = None if isinstance(told, AtRunTime) else told.setting
        edits = optim_saved(project, use.module, use.node, setting)
        if isinstance(edits, Refused):
            yield finding(use.module, use.node, "FM404", edits.why, remedy=_REMEDY)
            continue
        yield finding(
            use.module,
            use.node,
            "FM404",
            "optimizer state is asked for by the state dict functions of torch.distributed.checkpoint",
            safety=Safety.SAFE,
            edits=[*resharded_before(project, use.module, use.node, model), *edits],
        )
    for use in project.static_calls("rekey_optim_state_dict"):
        yield _rekeyed(use)


def _rekeyed(use: MethodCall) -> Finding:
    """`FSDP.rekey_optim_state_dict(state, key_type, model)`."""
    given = argument(use.node, 3, "optim_input")
    if len(use.node.args) > 4 or (given is not None and ast.unparse(given) != "None"):
        return finding(
            use.module,
            use.node,
            "FM404",
            "`rekey_optim_state_dict` is given `optim_input`, whose order of parameters has no counterpart",
            remedy="load by name with `set_optimizer_state_dict`, or map names to numbers in your own code",
        )
    span = use.module.span(use.node.func)
    return finding(
        use.module,
        use.node,
        "FM404",
        "optimizer state is keyed anew by a function of the helper module",
        safety=Safety.SAFE,
        edits=[Edit(use.module.path, span, (Ref("helper.rekey_optim_state_dict"),))],
    )
