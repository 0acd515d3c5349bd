"""FSDP2 code for one optimizer state dict call of FSDP1's class, old forms included.

Source: `FullyShardedDataParallel.optim_state_dict`, `.optim_state_dict_to_load` and the legacy functions;
`torch/distributed/checkpoint/state_dict.py`, torch 2.6 to 2.13.
"""

from __future__ import annotations

import ast
from dataclasses import replace as replaced
from typing import TYPE_CHECKING

from codemods.analysis.flow import reaching
from codemods.analysis.module import Module
from codemods.analysis.process_groups import is_group
from codemods.analysis.state_dict_kinds import LOCAL
from codemods.analysis.state_dicts import Flags, Kind, Setting, argument
from codemods.analysis.values import Literal
from codemods.editing.code import code, delete, replace, stands_alone
from codemods.editing.state_dicts import API, Edits, Refused, saved
from codemods.editing.statements import is_under_rank0
from codemods.model import Code, Edit

if TYPE_CHECKING:
    from codemods.project import Project

STATIC_SAVES = frozenset({"optim_state_dict", "full_optim_state_dict", "sharded_optim_state_dict"})
# The legacy functions choose their kind themselves, whatever the setting is.
LEGACY_KINDS = {
    "full_optim_state_dict": Kind.FULL,
    "sharded_optim_state_dict": Kind.SHARDED,
    "scatter_full_optim_state_dict": Kind.FULL,
    "shard_full_optim_state_dict": Kind.FULL,
    "flatten_sharded_optim_state_dict": Kind.SHARDED,
}


def optim_saved(
    project: Project, module: Module, call: ast.Call, setting: Setting | None, shared: Code | None = None
) -> Edits:
    """`FSDP.optim_state_dict(model, optimizer)` and its older forms.

    Args:
        setting: None where the kind is decided at run time, here and below.
    """
    assert isinstance(call.func, ast.Attribute)
    name = call.func.attr
    at_run_time = setting is None and name not in LEGACY_KINDS
    setting = setting or Setting()
    kind, flags = LEGACY_KINDS.get(name, setting.kind), setting.optim
    model, optim = argument(call, 0, "model"), argument(call, 1, "optim")
    if kind is Kind.LOCAL:
        return Refused(LOCAL)
    group = argument(call, 4 if name == "full_optim_state_dict" else 3, "group")
    in_group = group is not None and is_group(project, module, group)
    given = argument(call, 2, "optim_state_dict", "optim_input")
    own_state = _own_state(module, optim, given) if optim is not None and given is not None else []
    if model is None or optim is None or own_state is None:
        return Refused(f"`{name}` is called with arguments that have no counterpart")
    if at_run_time:
        new = code(module, "{helper.optim_state_dict}({model}, {optim})", model=model, optim=optim)
        return [*own_state, replace(module, call, new)]
    if name == "full_optim_state_dict":
        rank0 = argument(call, 3, "rank0_only")
        value = project.evaluate(module, rank0) if rank0 is not None else None
        if rank0 is not None and not isinstance(value, Literal):
            return [*own_state, replace(module, call, _gathered(module, model, optim, rank0))]
        told = value.value if isinstance(value, Literal) else True
        flags, shared = Flags(offload_to_cpu=True, rank0_only=bool(told)), None
    elif name == "sharded_optim_state_dict":
        flags, shared = Flags(offload_to_cpu=False), None
    elif (
        kind is Kind.FULL and flags.offload_to_cpu and not flags.rank0_only and _only_rank0_uses(module, call)
    ):
        flags = Flags(offload_to_cpu=True, rank0_only=True)
    if in_group:
        flags, shared = replaced(flags, within_group=True), None
    subjects = code(module, "{model}, {optim}", model=model, optim=optim)
    new = saved("get_optimizer_state_dict", kind, flags, subjects, shared)
    return [*own_state, replace(module, call, new)]


def _gathered(module: Module, model: ast.expr, optim: ast.expr, rank0_only: ast.expr) -> Code:
    """Whole optimizer state, where a value of the program says whether other ranks get it."""
    return code(
        module,
        f"{{helper.full_tensors}}({{{API}.get_optimizer_state_dict}}({{model}}, {{optim}}), "
        "offload_to_cpu=True, rank0_only={rank0})",
        model=model,
        optim=optim,
        rank0=rank0_only,
    )


def _own_state(module: Module, optim: ast.expr, given: ast.expr) -> list[Edit] | None:
    """Edits that do away with `given` where it is what is taken without it, `optim.state_dict()`; else
    None."""
    own = f"{ast.unparse(optim)}.state_dict()"
    if ast.unparse(given) in (own, "None"):
        return []
    found = module.scope_of(given).lookup(given.id) if isinstance(given, ast.Name) else None
    live = reaching(module, *found, given) if found is not None else []
    if not live or any(b.value is None or b.unpack or ast.unparse(b.value) != own for b in live):
        return None
    assert isinstance(given, ast.Name)
    names = [n for n in module.nodes(ast.Name) if isinstance(n, ast.Name) and n.id == given.id]
    reads = [n for n in names if isinstance(n.ctx, ast.Load)]
    statements = [module.statement(b.node) for b in live]
    if len(reads) > 1 or not all(stands_alone(module, statement) for statement in statements):
        return []
    return [delete(module, statement) for statement in statements]


def _only_rank0_uses(module: Module, call: ast.Call) -> bool:
    """Whether the result has a name that is read under `if rank == 0:` and nowhere else."""
    statement = module.statement(call)
    if not (isinstance(statement, ast.Assign) and len(statement.targets) == 1):
        return False
    target = statement.targets[0]
    if not isinstance(target, ast.Name):
        return False
    scope = module.scope_of(statement)
    uses = [n for n in module.nodes(ast.Name) if isinstance(n, ast.Name) and n.id == target.id]
    reads = [n for n in uses if isinstance(n.ctx, ast.Load) and module.scope_of(n) is scope]
    return bool(reads) and all(is_under_rank0(module, read) for read in reads)
