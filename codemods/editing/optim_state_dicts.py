"""FSDP2 code for one optimizer state dict call of FSDP1's class, old forms included.

Source: `FullyShardedDataParallel.optim_state_dict`, `.optim_state_dict_to_load` and the legacy functions;
`torch/distributed/checkpoint/state_dict.py`, torch 2.6 to 2.13.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from codemods.analysis.flow import reaching
from codemods.analysis.holding import Maybe, Sharded
from codemods.analysis.module import Module
from codemods.analysis.state_dicts import Flags, Kind, Setting, argument
from codemods.analysis.values import Literal
from codemods.editing.code import code, delete, replace, stands_alone
from codemods.editing.state_dicts import API, LOCAL, Edits, Refused, saved
from codemods.editing.statements import is_under_rank0
from codemods.model import Code, Edit

if TYPE_CHECKING:
    from codemods.project import Project

STATIC_SAVES = frozenset({"optim_state_dict", "full_optim_state_dict", "sharded_optim_state_dict"})
STATIC_LOADS = frozenset(
    {
        "optim_state_dict_to_load",
        "scatter_full_optim_state_dict",
        "shard_full_optim_state_dict",
        "flatten_sharded_optim_state_dict",
    }
)
# The legacy functions choose their kind themselves, whatever the setting is.
_LEGACY_KINDS = {
    "full_optim_state_dict": Kind.FULL,
    "sharded_optim_state_dict": Kind.SHARDED,
    "scatter_full_optim_state_dict": Kind.FULL,
    "shard_full_optim_state_dict": Kind.FULL,
    "flatten_sharded_optim_state_dict": Kind.SHARDED,
}


def optim_saved(
    project: Project, module: Module, call: ast.Call, setting: Setting, shared: Code | None = None
) -> Edits:
    """`FSDP.optim_state_dict(model, optimizer)` and its older forms."""
    assert isinstance(call.func, ast.Attribute)
    name = call.func.attr
    kind, flags = _LEGACY_KINDS.get(name, setting.kind), setting.optim
    model, optim = argument(call, 0, "model"), argument(call, 1, "optim")
    if kind is Kind.LOCAL:
        return Refused(LOCAL)
    given = argument(call, 2, "optim_state_dict", "optim_input")
    own_state = _own_state(module, optim, given) if optim is not None and given is not None else []
    if model is None or optim is None or own_state is None:
        return Refused(f"`{name}` is called with arguments that have no counterpart")
    if name == "full_optim_state_dict":
        rank0 = argument(call, 3, "rank0_only")
        value = project.evaluate(module, rank0) if rank0 is not None else None
        told = value.value if isinstance(value, Literal) else value is None
        flags, shared = Flags(offload_to_cpu=True, rank0_only=bool(told)), None
    elif name == "sharded_optim_state_dict":
        flags, shared = Flags(offload_to_cpu=False), None
    elif (
        kind is Kind.FULL and flags.offload_to_cpu and not flags.rank0_only and _only_rank0_uses(module, call)
    ):
        flags = Flags(offload_to_cpu=True, rank0_only=True)
    subjects = code(module, "{model}, {optim}", model=model, optim=optim)
    new = saved("get_optimizer_state_dict", kind, flags, subjects, shared)
    return [*own_state, replace(module, call, new)]


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


def optim_loaded(project: Project, module: Module, call: ast.Call, setting: Setting) -> Edits:
    """`FSDP.optim_state_dict_to_load(...)` and the `optimizer.load_state_dict` that takes its result."""
    assert isinstance(call.func, ast.Attribute)
    name = call.func.attr
    subjects = _load_subjects(project, module, call)
    if subjects is None:
        return Refused(
            f"which argument of `{name}` is the model cannot be told: the order changed in torch 2.1"
        )
    model, optim, state = subjects
    kind = _LEGACY_KINDS.get(name, setting.kind)
    if kind is Kind.LOCAL:
        return Refused(LOCAL)
    from_rank0 = name.startswith("scatter") or (
        setting.optim.rank0_only and name == "optim_state_dict_to_load"
    )
    site = _loading_site(module, call)
    if isinstance(site, Refused):
        return site
    place, removed, loader = site
    optim = optim if optim is not None else loader
    if optim is None:
        return Refused(f"which optimizer `{name}` is for is not written here")
    new = _set_optimizer(project, module, (model, optim, state), kind, from_rank0)
    return [replace(module, place, new), *(delete(module, statement) for statement in removed)]


def _set_optimizer(
    project: Project,
    module: Module,
    subjects: tuple[ast.expr, ast.expr, ast.expr],
    kind: Kind,
    from_rank0: bool,
) -> Code:
    model, optim, state = subjects
    parts = {"model": model, "optim": optim, "state": state}
    if kind is Kind.SHARDED:
        return code(module, f"{{{API}.set_optimizer_state_dict}}({{model}}, {{optim}}, {{state}})", **parts)
    if from_rank0:
        return code(
            module, "{helper.load_full_optimizer}({model}, {optim}, {state}, broadcast=True)", **parts
        )
    if uses_orig_params(project, module, model):
        told = f"{{{API}.StateDictOptions}}(full_state_dict=True)"
        template = f"{{{API}.set_optimizer_state_dict}}({{model}}, {{optim}}, {{state}}, options={told})"
        return code(module, template, **parts)
    return code(module, "{helper.load_full_optimizer}({model}, {optim}, {state})", **parts)


def uses_orig_params(project: Project, module: Module, model: ast.expr) -> bool:
    """Whether every wrap call the model can come from says `use_orig_params=True`."""
    holding = project.sharded(module, model)
    sites = holding.sites if isinstance(holding, Sharded | Maybe) else frozenset()
    told = [argument(site.node, 13, "use_orig_params") for site in sites]
    values = [
        project.evaluate(s.module, t) if t is not None else None for s, t in zip(sites, told, strict=True)
    ]
    return bool(values) and all(isinstance(v, Literal) and v.value is True for v in values)


def _load_subjects(
    project: Project, module: Module, call: ast.Call
) -> tuple[ast.expr, ast.expr | None, ast.expr] | None:
    """Model, optimizer and state dict, whatever the order (before torch 2.1 the state dict came first)."""
    assert isinstance(call.func, ast.Attribute)
    names = {keyword.arg: keyword.value for keyword in call.keywords}
    model = names.get("model")
    optim = names.get("optim")
    state = names.get("optim_state_dict") or names.get("full_optim_state_dict")
    state = state or names.get("sharded_optim_state_dict")
    rest = list(call.args)
    if any(isinstance(a, ast.Starred) for a in rest):
        return None
    if model is None:
        found = [a for a in rest[:2] if isinstance(project.sharded(module, a), Sharded | Maybe)]
        new_order = call.func.attr == "optim_state_dict_to_load" and len(rest) == 3
        if not found and new_order and _names_a_state(rest[0]) and not _names_a_state(rest[1]):
            found = [rest[1]]
        is_legacy = call.func.attr != "optim_state_dict_to_load" and len(rest) > 1
        if is_legacy:
            model = rest[1]
        elif len(found) == 1 or new_order:
            model = found[0] if len(found) == 1 else rest[0]
        else:
            return None
        rest.remove(model)
    is_first = call.func.attr != "optim_state_dict_to_load" or (call.args and model is not call.args[0])
    if state is None and rest and is_first:
        state = rest.pop(0)
    if optim is None and rest:
        optim = rest.pop(0)
    if state is None and rest:
        state = rest.pop(0)
    return (model, optim, state) if state is not None else None


def _names_a_state(node: ast.expr) -> bool:
    """Whether an argument's words say that it is a state dict and no model."""
    words = ast.unparse(node).lower()
    return (
        any(word in words for word in ("state", "osd", "sd", "checkpoint", "ckpt")) and "model" not in words
    )


def _loading_site(
    module: Module, call: ast.Call
) -> tuple[ast.expr, list[ast.stmt], ast.expr | None] | Refused:
    """The expression that becomes the new call, statements that go, and the optimizer that loads."""
    parent = module.parent(call)
    if isinstance(parent, ast.Expr):
        directly = argument(call, 4, "load_directly")
        if isinstance(directly, ast.Constant) and directly.value is True:
            return call, [], None
        return Refused("its result is not loaded into an optimizer")
    if _is_load(parent) and isinstance(parent, ast.Call) and isinstance(module.parent(parent), ast.Expr):
        assert isinstance(parent.func, ast.Attribute)
        return parent, [], parent.func.value
    if (
        isinstance(parent, ast.Assign)
        and len(parent.targets) == 1
        and isinstance(parent.targets[0], ast.Name)
    ):
        loads = _loads_of(module, parent, parent.targets[0].id)
        if len(loads) == 1:
            user = module.parent(loads[0])
            if _is_load(user) and isinstance(user, ast.Call) and isinstance(module.parent(user), ast.Expr):
                assert isinstance(user.func, ast.Attribute)
                return user, [parent], user.func.value
    return Refused(
        "its result is used for something else than `optimizer.load_state_dict` in the same function"
    )


def _is_load(node: ast.AST | None) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "load_state_dict"
    )


def _loads_of(module: Module, assignment: ast.Assign, name: str) -> list[ast.Name]:
    """Reads of a name after its assignment, in the same function, until it is bound again."""
    scope, start = module.scope_of(assignment), module.span(assignment).end
    names = [n for n in module.nodes(ast.Name) if isinstance(n, ast.Name) and n.id == name]
    after = sorted(
        (n for n in names if module.scope_of(n) is scope and module.span(n).start >= start),
        key=lambda n: module.span(n).start,
    )
    found = []
    for use in after:
        if isinstance(use.ctx, ast.Store):
            break
        found.append(use)
    return found
