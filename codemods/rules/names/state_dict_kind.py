"""`StateDictType` as a configuration value.

Source: `torch/distributed/fsdp/api.py` (`StateDictType`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.analysis.library_calls import held_by_libraries
from codemods.rule import FSDP, Edit, Finding, NameUse, Project, Ref, Safety, finding, rule

_NAME = "torch.distributed.fsdp.StateDictType"


@rule("StateDictType", {"FM411": "the kind of state dict as a configuration value"}, order=80)
def state_dict_kind(project: Project) -> Iterator[Finding]:
    """`StateDictType` in a configuration or a comparison keeps its name and members; only the import changes.

    Where the kind of state dict is a setting, `cfg.checkpoint_type == StateDictType.FULL_STATE_DICT` still
    decides which function saves. The helper module has an enumeration of the same name. What is given to
    `FSDP.state_dict_type` goes with that call."""
    held = held_by_libraries(project)
    for use in project.uses(_NAME):
        span = use.module.span(use.node)
        if _is_for_fsdp1(project, use) or any(h.span.holds(span) for h in held.get(use.module.path, ())):
            continue
        yield finding(
            use.module,
            use.node,
            "FM411",
            "`StateDictType` comes from the helper module",
            safety=Safety.SAFE,
            edits=[Edit(use.module.path, use.module.span(use.node), (Ref("helper.StateDictType"),))],
            fades=True,
        )


def _is_for_fsdp1(project: Project, use: NameUse) -> bool:
    """Whether the value is an argument of one of FSDP1's own calls."""
    for parent in use.module.ancestors(use.node):
        if isinstance(parent, ast.stmt):
            return False
        if isinstance(parent, ast.Call):
            symbol = project.resolve(use.module, parent.func)
            if symbol is not None and symbol.name.startswith(f"{FSDP}."):
                return True
    return False
