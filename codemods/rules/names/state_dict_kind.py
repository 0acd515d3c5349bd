"""`StateDictType` and its configuration types as values.

Source: `torch/distributed/fsdp/api.py` (`StateDictType`, `FullStateDictConfig` and its like,
`OptimStateKeyType` of `fully_sharded_data_parallel.py`).
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from codemods.analysis.library_calls import held_by_libraries
from codemods.rule import (
    FSDP,
    Edit,
    Finding,
    NameUse,
    Project,
    Ref,
    Safety,
    decided_at_run_time,
    finding,
    rule,
)
from codemods.shared_types import STATE_DICT_KIND, shared_call, shared_type

_PREFIX = "torch.distributed.fsdp."
_CONFIGS = (
    "StateDictConfig",
    "FullStateDictConfig",
    "ShardedStateDictConfig",
    "OptimStateDictConfig",
    "FullOptimStateDictConfig",
    "ShardedOptimStateDictConfig",
    "StateDictSettings",
)


@rule(
    "StateDictType",
    {
        "FM411": "the kind of state dict as a configuration value",
        "FM412": "the configuration of a kind of state dict that is decided at run time",
    },
    order=80,
)
def state_dict_kind(project: Project) -> Iterator[Finding]:
    """`StateDictType` in a configuration or a comparison keeps its name and members; only the import changes.

    Where the kind of state dict is a setting, `cfg.checkpoint_type == StateDictType.FULL_STATE_DICT` still
    decides which function saves. The helper module has an enumeration of the same name. What is given to
    `FSDP.state_dict_type` goes with that call.

    Where the program decides when it runs, so that the helper module's `state_dict_type` takes FSDP1's place,
    `FullStateDictConfig` and its like come from the helper module too, with the same fields and defaults."""
    run_time = decided_at_run_time(project).calls
    asks = any(True for _ in project.static_calls("get_state_dict_type"))
    held = held_by_libraries(project)
    moving = [("StateDictType", "FM411")]
    moving += [(name, "FM412") for name in _CONFIGS if run_time or asks]
    moving += [("OptimStateKeyType", "FM412")]
    for name, fm in moving:
        for use in project.uses(f"{_PREFIX}{name}"):
            span = use.module.span(use.node)
            if _is_for_fsdp1(project, use, run_time):
                continue
            if any(h.span.holds(span) for h in held.get(use.module.path, ())):
                continue
            yield finding(
                use.module,
                use.node,
                fm,
                f"`{name}` comes from the helper module",
                safety=Safety.SAFE,
                edits=[Edit(use.module.path, use.module.span(use.node), (Ref(f"helper.{name}"),))],
                fades=True,
                remedy=f"change `{name}` together with the `state_dict_type` calls that take it",
                shares=_shares(project, use, run_time),
            )


def _shares(project: Project, use: NameUse, run_time: Collection[ast.Call]) -> set[str]:
    """What a use is changed together with: the choice it stands in, or its files' choices and uses."""
    if use.symbol.name.endswith("OptimStateKeyType"):
        return set()
    for parent in use.module.ancestors(use.node):
        if isinstance(parent, ast.Call) and parent in run_time:
            return {shared_call(use.module, parent)}
        if isinstance(parent, ast.stmt):
            break
    return {shared_type(project, use.module, STATE_DICT_KIND)}


def _is_for_fsdp1(project: Project, use: NameUse, run_time: dict[ast.Call, str]) -> bool:
    """Whether the value is an argument of one of FSDP1's own calls that stays or goes altogether."""
    for parent in use.module.ancestors(use.node):
        if isinstance(parent, ast.stmt):
            return False
        if isinstance(parent, ast.Call):
            if parent in run_time:
                return False
            symbol = project.resolve(use.module, parent.func)
            if symbol is not None and symbol.name == f"{FSDP}.rekey_optim_state_dict":
                return False
            if symbol is not None and symbol.name.startswith(f"{FSDP}."):
                return True
    return False
