"""`FSDP.set_state_dict_type(model, ...)`, `FSDP.get_state_dict_type(model)`.

Source: `FullyShardedDataParallel.set_state_dict_type`, `.get_state_dict_type`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.rule import (
    Finding,
    Kind,
    Project,
    Safety,
    Unknown,
    delete,
    finding,
    rule,
    setting_of,
)


@rule("set_state_dict_type", {"FM406": "a lasting choice of the kind of state dict"})
def set_state_dict_type(project: Project) -> Iterator[Finding]:
    """`FSDP.set_state_dict_type(...)` goes; each later `state_dict()` says what kind it wants.

    The choice was stored in the model and changed the meaning of every later `state_dict()`, `load_state_dict()` and
    `optim_state_dict()` call. Those calls are translated with the chosen kind (see FM402 to FM405). A choice made at
    run time, LOCAL_STATE_DICT, a call whose result is kept, and `get_state_dict_type` are left to a person.
    """
    for use in project.static_calls("set_state_dict_type"):
        statement = use.module.statement(use.node)
        setting = setting_of(project, use.module, use.node)
        reason = setting.why if isinstance(setting, Unknown) else ""
        if not isinstance(setting, Unknown) and setting.kind is Kind.LOCAL:
            reason = "LOCAL_STATE_DICT holds flat parameters, which FSDP2 does not have"
        if not (isinstance(statement, ast.Expr) and statement.value is use.node):
            reason = reason or "the settings that were in force before are kept for later"
        if reason:
            yield finding(
                use.module,
                use.node,
                "FM406",
                reason,
                remedy="delete the call and say at each state dict call what kind it gives (`StateDictOptions`)",
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
