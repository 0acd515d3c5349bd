"""FSDP2's own state dict calls beside a kind of state dict that was chosen for FSDP1's models.

Source: `torch/distributed/checkpoint/state_dict.py` (without `options` what is given are shards)."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.plain_tests import is_test_path
from codemods.rule import Finding, Project, finding, rule

_HOME = "torch.distributed.checkpoint.state_dict"
_GETTERS = ("get_model_state_dict", "get_optimizer_state_dict", "get_state_dict")


@rule("get_optimizer_state_dict", {"FM414": "an FSDP2 branch gives shards, whatever kind was chosen"})
def chosen_kind(project: Project) -> Iterator[Finding]:
    """`get_optimizer_state_dict(model, optimizer)` of an FSDP2 branch gives shards, to FSDP1's models too.

    Where a program serves both stacks, the models that were FSDP1's go through what it has for FSDP2. Their
    state dicts were of the kind that `FSDP.set_state_dict_type` chose, whole ones say; a call without
    `options` does not ask for that kind. Noted where the project sets a kind that lasts, at each such call:

        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        state = get_optimizer_state_dict(model, optimizer, options=options)
    """
    chosen = [
        call
        for call in project.static_calls("set_state_dict_type")
        if not is_test_path(call.module.path) and "SHARDED_STATE_DICT" not in ast.unparse(call.node)
    ]
    for name in _GETTERS if chosen else ():
        for module, call in project.calls_of(f"{_HOME}.{name}"):
            if not is_test_path(module.path) and not any(k.arg in ("options", None) for k in call.keywords):
                yield finding(
                    module,
                    call,
                    "FM414",
                    "models that were FSDP1's come here too now, and this gives shards, whatever kind "
                    "`set_state_dict_type` chose for them",
                    remedy="ask for the chosen kind: `options=StateDictOptions(full_state_dict=True)`",
                    is_note=True,
                )
