"""Old names of torch.distributed.checkpoint.

Source: `torch/distributed/checkpoint/state_dict_saver.py`, `state_dict_loader.py` (`save_state_dict` and
`load_state_dict` are deprecated since torch 2.2 and gone or warned about later).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from codemods.analysis.conditions import conditions
from codemods.rule import (
    Edit,
    Finding,
    Module,
    Project,
    Safety,
    code,
    delete_arguments,
    finding,
    insert_text,
    replace,
    rule,
)

_HOME = "torch.distributed.checkpoint"
_OLD_HOME = "torch.distributed._shard.checkpoint"
_VERSION = re.compile(r"torch\.__version__\)*\s*([<>]=?)\s*[^\d]*(\d+)\.(\d+)")
_FIRST = (2, 4)
"""The oldest torch with FSDP2."""
_NO_DIST = (2, 7)
"""The torch whose `save` and `load` take `no_dist` again (pytorch#145754)."""
_NEW = {"save_state_dict": "save", "load_state_dict": "load"}
# After the state dict, in the old functions' order; all of them are keyword-only in the new ones.
_OLD_ORDER = {
    "save_state_dict": ("storage_writer", "process_group", "coordinator_rank", "no_dist", "planner"),
    "load_state_dict": ("storage_reader", "process_group", "coordinator_rank", "no_dist", "planner"),
}


@rule(
    "dist_cp",
    {"FM410": "an old name of torch.distributed.checkpoint"},
    where={b"save_state_dict": b"", b"load_state_dict": rb"distributed[^\n]*\bcheckpoint\b"},
)
def dist_cp(project: Project) -> Iterator[Finding]:
    """`dist_cp.save_state_dict(...)` becomes `dist_cp.save(...)`, `load_state_dict` becomes `load`.

    The old functions have been deprecated since torch 2.2. Arguments after the state dict get names, as the
    new functions want them. `no_dist` is theirs from torch 2.7 on: with an older `--target-torch` such calls
    stay, and work. Calls that use `coordinator_rank` are left to a person, unless it says what is so by
    default; those that only run with a torch that is too old for the new names stay."""
    for old, new in _NEW.items():
        for module, call in _calls(project, old):
            if _is_for_old_torch(module, call):
                message = f"`{old}` stays: this branch is for a torch before FSDP2, and goes with it"
                yield finding(module, call, "FM410", message, is_note=True)
                continue
            names = [k.arg for k in call.keywords]
            positions = _OLD_ORDER[old][: max(len(call.args) - 1, 0)]
            default = [k for k in call.keywords if _is_default(k)]
            asked = {*(k.arg for k in call.keywords if k not in default), *positions}
            if "coordinator_rank" in asked or None in names:
                yield finding(
                    module,
                    call,
                    "FM410",
                    f"`{old}` is deprecated, and its `coordinator_rank` has no counterpart in `{new}`",
                    remedy=f"call `torch.distributed.checkpoint.{new}`",
                )
                continue
            if "no_dist" in asked and project.options.target_torch < _NO_DIST:
                message = (
                    f"`{old}` is deprecated and stays: `{new}` takes `no_dist` from torch "
                    f"{'.'.join(map(str, _NO_DIST))} on"
                )
                yield finding(module, call, "FM410", message, is_note=True)
                continue
            yield finding(
                module,
                call,
                "FM410",
                f"`{old}` of torch.distributed.checkpoint is now `{new}`",
                safety=Safety.SAFE,
                edits=[
                    *_edits(project, module, call, positions, new),
                    *delete_arguments(module, call, default),
                ],
            )


def _is_default(given: ast.keyword) -> bool:
    """Whether an argument that the new function lacks says what it says by default."""
    value = given.value.value if isinstance(given.value, ast.Constant) else None
    return (given.arg == "no_dist" and value is False) or (given.arg == "coordinator_rank" and value == 0)


def _calls(project: Project, old: str) -> Iterator[tuple[Module, ast.Call]]:
    for home in (_HOME, f"{_HOME}.state_dict_saver", f"{_HOME}.state_dict_loader", _OLD_HOME):
        yield from project.calls_of(f"{home}.{old}")


def _is_for_old_torch(module: Module, call: ast.Call) -> bool:
    """Whether a place is reached only with a torch that has no FSDP2: `if version(torch) < "2.2":`."""
    for test, holds in conditions(module, call):
        found = _VERSION.search(ast.unparse(test)) if isinstance(test, ast.Compare) else None
        if found is not None and found[1].startswith("<") is holds:
            return (int(found[2]), int(found[3])) <= _FIRST
    return False


def _edits(
    project: Project, module: Module, call: ast.Call, positions: tuple[str, ...], new: str
) -> list[Edit]:
    is_old_home = _OLD_HOME in (symbol.name if (symbol := project.resolve(module, call.func)) else "")
    if isinstance(call.func, ast.Attribute) and not is_old_home:
        renamed = replace(module, call.func, code(module, f"{{home}}.{new}", home=call.func.value))
    else:
        renamed = replace(module, call.func, code(None, f"{{{_HOME}}}.{new}"))
    named = [
        insert_text(module, node, f"{name}=") for node, name in zip(call.args[1:], positions, strict=True)
    ]
    return [renamed, *named]
