"""`FSDP.set_state_dict_type(model, ...)`, `FSDP.get_state_dict_type(model)`.

Source: `FullyShardedDataParallel.set_state_dict_type`, `.get_state_dict_type`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.rule import (
    Finding,
    Kind,
    MethodCall,
    Project,
    Safety,
    Setting,
    Unknown,
    argument,
    delete,
    finding,
    in_force,
    rule,
    same_model,
    setting_of,
)

_OPTIMIZER_CALLS = ("optim_state_dict", "optim_state_dict_to_load")


@rule("set_state_dict_type", {"FM406": "a lasting choice of the kind of state dict"})
def set_state_dict_type(project: Project) -> Iterator[Finding]:
    """`FSDP.set_state_dict_type(...)` goes; each later `state_dict()` says what kind it wants.

    The choice was stored in the model and changed the meaning of every later `state_dict()`,
    `load_state_dict()` and `optim_state_dict()` call. Those calls are translated with the chosen kind (see
    FM402 to FM405). A choice made at run time, LOCAL_STATE_DICT, a call whose result is kept, and
    `get_state_dict_type` are left to a person."""
    settings = {use.node: setting_of(project, use.module, use.node) for use in _calls(project)}
    for use in _calls(project):
        statement = use.module.statement(use.node)
        setting = settings[use.node]
        reason = setting.why if isinstance(setting, Unknown) else ""
        if not isinstance(setting, Unknown) and setting.kind is Kind.LOCAL:
            reason = "LOCAL_STATE_DICT holds flat parameters, which FSDP2 does not have"
        if _differs(project, use, settings) and _leaves_undecided(project, use):
            reason = reason or "other calls choose another kind of state dict for the same model"
        if not (isinstance(statement, ast.Expr) and statement.value is use.node):
            reason = reason or "the settings that were in force before are kept for later"
        if reason:
            yield finding(
                use.module,
                use.node,
                "FM406",
                reason,
                remedy=(
                    "delete the call and say at each state dict call what kind it gives (`StateDictOptions`)"
                ),
            )
            continue
        yield finding(
            use.module,
            use.node,
            "FM406",
            "the kind of state dict is said at each call",
            safety=Safety.SAFE,
            edits=[delete(use.module, statement)],
        )
    for use in project.static_calls("get_state_dict_type"):
        yield finding(
            use.module,
            use.node,
            "FM406",
            "an FSDP2 model has no state dict type to ask for",
            remedy="keep what your code chose in a variable of its own",
        )


def _calls(project: Project) -> list[MethodCall]:
    return list(project.static_calls("set_state_dict_type"))


def _differs(project: Project, use: MethodCall, settings: dict[ast.Call, Setting | Unknown]) -> bool:
    """Whether another call outside of the same function chooses something else for the same model."""
    own, model = settings[use.node], argument(use.node, 0, "module")
    for other in _calls(project):
        chosen, target = settings[other.node], argument(other.node, 0, "module")
        if (
            model is None
            or target is None
            or use.module.function(use.node) is other.module.function(other.node)
        ):
            continue
        is_same = isinstance(own, Setting) and isinstance(chosen, Setting) and own.bare == chosen.bare
        if not is_same and same_model(project, use.module, model, other.module, target):
            return True
    return False


def _leaves_undecided(project: Project, use: MethodCall) -> bool:
    """Whether what some call gives for the same model depends on which of the settings came last."""
    model = argument(use.node, 0, "module")
    calls: list[tuple[MethodCall, ast.expr | None]] = [
        (c, c.receiver) for c in project.method_calls("state_dict", "load_state_dict")
    ]
    calls += [(c, argument(c.node, 0, "model")) for c in project.static_calls(*_OPTIMIZER_CALLS)]
    return any(
        subject is not None
        and model is not None
        and same_model(project, use.module, model, call.module, subject)
        and isinstance(in_force(project, call.module, call.node, subject), Unknown)
        for call, subject in calls
    )
