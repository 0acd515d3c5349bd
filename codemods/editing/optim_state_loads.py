"""FSDP2 code for one call that loads optimizer state in FSDP1's form, old forms included.

Source: `FullyShardedDataParallel.optim_state_dict_to_load` and the legacy functions;
`torch/distributed/checkpoint/state_dict.py`, torch 2.6 to 2.13.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from codemods.analysis.flow import reaching
from codemods.analysis.holding import Maybe, Sharded, WrapCall
from codemods.analysis.module import Module
from codemods.analysis.process_groups import is_group
from codemods.analysis.state_dict_kinds import LOCAL
from codemods.analysis.state_dicts import Kind, Setting, argument
from codemods.analysis.values import Literal
from codemods.editing.code import code, delete, replace
from codemods.editing.loaded_groups import has_no_eps, may_lack_schedule
from codemods.editing.optim_state_dicts import LEGACY_KINDS
from codemods.editing.sharded_optim import is_read_sharded
from codemods.editing.state_dicts import API, Edits, Refused
from codemods.model import Code
from codemods.wrap_site import arguments_of

if TYPE_CHECKING:
    from codemods.project import Project

STATIC_LOADS = frozenset(
    {
        "optim_state_dict_to_load",
        "scatter_full_optim_state_dict",
        "shard_full_optim_state_dict",
        "flatten_sharded_optim_state_dict",
    }
)


def optim_loaded(project: Project, module: Module, call: ast.Call, setting: Setting | None) -> Edits:
    """`FSDP.optim_state_dict_to_load(...)` and the `optimizer.load_state_dict` that takes its result.

    Where the result goes elsewhere it is made in the form that `optimizer.load_state_dict` takes.
    """
    assert isinstance(call.func, ast.Attribute)
    name = call.func.attr
    if (given := _optim_input(call)) is not None and ast.unparse(given) != "None":
        return Refused(f"`{name}` is given `optim_input`, whose order of parameters has no counterpart")
    subjects = _load_subjects(project, module, call)
    if subjects is None:
        return Refused(
            f"which argument of `{name}` is the model cannot be told: the order changed in torch 2.1"
        )
    model, optim, state = subjects
    is_legacy = name in LEGACY_KINDS
    if not is_legacy and is_read_sharded(project, module, state):
        setting = Setting(Kind.SHARDED)
    kind = LEGACY_KINDS.get(name, setting.kind if setting is not None else Kind.FULL)
    if kind is Kind.LOCAL:
        return Refused(LOCAL)
    from_rank0 = name.startswith("scatter") or (
        setting is not None and setting.optim.rank0_only and not is_legacy
    )
    group = argument(call, 4 if is_legacy else 5, "group")
    if from_rank0 and group is not None and is_group(project, module, group):
        return Refused("the state comes from a group's rank, and torch's functions take rank 0 of all")
    site = _loading_site(module, call)
    at_run_time = setting is None and not is_legacy
    if at_run_time or isinstance(site, Refused):
        loads_itself = not isinstance(site, Refused) and site[0] is call
        subjects = (model, optim, state)
        return _numbered(module, call, subjects, from_rank0, at_run_time, loads_itself=loads_itself)
    place, removed, loader = site
    optim = optim if optim is not None else loader
    if optim is None:
        return Refused(f"which optimizer `{name}` is for is not written here")
    is_without_eps = has_no_eps(project, module, optim)
    if is_without_eps and kind is Kind.SHARDED:
        return Refused(
            "torch makes an optimizer's empty state by a step, which divides by its `eps` of zero: give its "
            "groups another until the state is loaded"
        )
    may_be_inline = (
        not is_without_eps
        and uses_orig_params(project, module, model)
        and not may_lack_schedule(project, module, place, optim)
    )
    new = _set_optimizer(module, (model, optim, state), kind, from_rank0, may_be_inline)
    return [replace(module, place, new), *(delete(module, statement) for statement in removed)]


def _numbered(
    module: Module,
    call: ast.Call,
    subjects: tuple[ast.expr, ast.expr | None, ast.expr],
    from_rank0: bool,
    at_run_time: bool,
    *,
    loads_itself: bool,
) -> Edits:
    """The state as `optimizer.load_state_dict` takes it, wherever that is called.

    Args:
        loads_itself: the call loads what it makes (`load_directly=True`).
    """
    model, optim, state = subjects
    if at_run_time and optim is None:
        return Refused("which optimizer it is for is not written here")
    name = "optim_state_dict_to_load" if at_run_time else "numbered_optim_state"
    more = ", from_rank0=True" if from_rank0 and not at_run_time else ""
    made = f"{{helper.{name}}}({{model}}, {{optim}}, {{state}}{more})"
    new = code(
        module,
        f"{{optim}}.load_state_dict({made})" if loads_itself else made,
        model=model,
        optim=optim if optim is not None else "None",
        state=state,
    )
    return [replace(module, call, new)]


def _optim_input(call: ast.Call) -> ast.expr | None:
    """What the two older functions take for the optimizer's own argument."""
    assert isinstance(call.func, ast.Attribute)
    if call.func.attr in ("scatter_full_optim_state_dict", "shard_full_optim_state_dict"):
        return argument(call, 2, "optim_input")
    return argument(call, 99, "optim_input")


def _set_optimizer(
    module: Module,
    subjects: tuple[ast.expr, ast.expr, ast.expr],
    kind: Kind,
    from_rank0: bool,
    may_be_inline: bool,
) -> Code:
    """
    Args:
        may_be_inline: nothing has to be done to the state or the optimizer beforehand.
    """
    model, optim, state = subjects
    parts = {"model": model, "optim": optim, "state": state}
    if kind is Kind.SHARDED:
        return code(module, f"{{{API}.set_optimizer_state_dict}}({{model}}, {{optim}}, {{state}})", **parts)
    if from_rank0:
        return code(
            module, "{helper.load_full_optimizer}({model}, {optim}, {state}, broadcast=True)", **parts
        )
    if may_be_inline:
        told = f"{{{API}.StateDictOptions}}(full_state_dict=True)"
        template = f"{{{API}.set_optimizer_state_dict}}({{model}}, {{optim}}, {{state}}, options={told})"
        return code(module, template, **parts)
    return code(module, "{helper.load_full_optimizer}({model}, {optim}, {state})", **parts)


def uses_orig_params(project: Project, module: Module, model: ast.expr) -> bool:
    """Whether every wrap call the model can come from says `use_orig_params=True`, itself or in a dict."""
    holding = project.sharded(module, model)
    sites = holding.sites if isinstance(holding, Sharded | Maybe) else frozenset()
    return bool(sites) and all(_keeps_orig_params(project, site) for site in sites)


def _keeps_orig_params(project: Project, site: WrapCall) -> bool:
    arguments, unknown = arguments_of(project, site)
    told = [a for a in arguments if a.name == "use_orig_params" and (a.at_call or not unknown)]
    return bool(told) and all(isinstance(a.value, Literal) and a.value.value is True for a in told)


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
    if call.func.attr.endswith("_full_optim_state_dict") and len(rest) > 2:
        del rest[2]  # `optim_input`
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
        return Refused("its result is not used")
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
                if _is_only_value(module, parent, loads[0]):
                    return user, [parent], user.func.value
    return Refused(
        "its result is used for something else than `optimizer.load_state_dict` in the same function"
    )


def _is_only_value(module: Module, assignment: ast.Assign, read: ast.Name) -> bool:
    """Whether a name has the value of this assignment wherever the read is reached: `if sharded: state = ...`
    leaves the other models' state as it was."""
    found = module.scope_of(read).lookup(read.id)
    live = reaching(module, *found, read) if found is not None else []
    return bool(live) and all(binding.value is assignment.value for binding in live)


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
