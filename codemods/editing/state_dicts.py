"""FSDP2 code for one state dict call: `torch.distributed.checkpoint.state_dict` with the right options.

Source: `torch/distributed/checkpoint/state_dict.py` (`StateDictOptions`: with `full_state_dict` and
`cpu_offload` only rank 0 gets values), torch 2.6 to 2.13."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TypeAlias

from codemods.analysis.module import Module
from codemods.analysis.state_dict_kinds import LOCAL
from codemods.analysis.state_dicts import Flags, Kind, Setting, argument
from codemods.editing.code import code, replace
from codemods.model import Code, Edit

API = "torch.distributed.checkpoint.state_dict"


@dataclass(frozen=True, slots=True)
class Refused:
    """No exact translation, and why."""

    why: str


Edits: TypeAlias = "list[Edit] | Refused"


def plain_options(kind: Kind, flags: Flags) -> str | None:
    """The arguments of `StateDictOptions` that mean the same; None where no options do."""
    if kind is Kind.SHARDED:
        return "cpu_offload=True" if flags.offload_to_cpu else ""
    if flags.offload_to_cpu and flags.rank0_only:
        if flags.within_group:
            return None  # torch means rank 0 of all ranks
        return "full_state_dict=True, cpu_offload=True"
    if not flags.offload_to_cpu and not flags.rank0_only:
        return "full_state_dict=True"
    return None


def options_argument(text: str, shared: Code | None) -> Code:
    """`, options=...` or nothing; `shared` is a name that already holds the options."""
    if shared is not None:
        return (", options=", *shared)
    if not text:
        return ()
    return (", options=", *code(None, f"{{{API}.StateDictOptions}}({text})"))


def saved(getter: str, kind: Kind, flags: Flags, subjects: Code, shared: Code | None) -> Code:
    """The call that gives a state dict of this kind; `subjects` is `model` or `model, optimizer`."""
    text = plain_options(kind, flags)
    if text is not None:
        return code(
            None,
            f"{{{API}.{getter}}}({{subjects}}{{options}})",
            subjects=subjects,
            options=options_argument(text, shared),
        )
    told = ", ".join(f"{name}=True" for name in ("offload_to_cpu", "rank0_only") if getattr(flags, name))
    return code(None, f"{{helper.full_tensors}}({{{API}.{getter}}}({{subjects}}), {told})", subjects=subjects)


def model_saved(module: Module, call: ast.Call, setting: Setting | None, shared: Code | None = None) -> Edits:
    """`model.state_dict()`.

    Args:
        setting: None where the kind is decided at run time, here and below.
    """
    if call.args or call.keywords:
        return Refused("`state_dict` is called with arguments, which `get_model_state_dict` does not take")
    assert isinstance(call.func, ast.Attribute)
    subject = code(module, "{model}", model=call.func.value)
    if setting is None:
        return [replace(module, call, code(None, "{helper.model_state_dict}({subject})", subject=subject))]
    if setting.kind is Kind.LOCAL:
        return Refused(LOCAL)
    return [
        replace(module, call, saved("get_model_state_dict", setting.kind, setting.model, subject, shared))
    ]


def model_loaded(module: Module, call: ast.Call, setting: Setting | None) -> Edits:
    """`model.load_state_dict(state)`; `set_model_state_dict` turns the values of the dict it is given into
    shards."""
    if setting is not None and setting.kind is Kind.LOCAL:
        return Refused(LOCAL)
    state, strict, assign = (
        argument(call, 0, "state_dict"),
        argument(call, 1, "strict"),
        argument(call, 2, "assign"),
    )
    if state is None or not (assign is None or (isinstance(assign, ast.Constant) and assign.value is False)):
        return Refused("`load_state_dict` with `assign=True` replaces sharded parameters")
    assert isinstance(call.func, ast.Attribute)
    if setting is None:
        more = code(module, ", strict={strict}", strict=strict) if strict is not None else ()
        new = code(
            module,
            "{helper.load_model_state_dict}({model}, {state}{more})",
            model=call.func.value,
            state=state,
            more=more,
        )
        return [replace(module, call, new)]
    told = ["full_state_dict=True"] if setting.kind is Kind.FULL else []
    if strict is not None and not (isinstance(strict, ast.Constant) and strict.value is True):
        told.append("strict={strict}")
    template = ", ".join(told)
    options = options_argument_with(module, template, strict)
    new = code(
        module,
        f"{{{API}.set_model_state_dict}}({{model}}, {{state}}{{options}})",
        model=call.func.value,
        state=_own_dict(module, call, state),
        options=options,
    )
    return [replace(module, call, new)]


def options_argument_with(module: Module, template: str, strict: ast.expr | None) -> Code:
    if not template:
        return ()
    parts = {"strict": strict} if strict is not None and "{strict}" in template else {}
    return (", options=", *code(module, f"{{{API}.StateDictOptions}}({template})", **parts))


def _own_dict(module: Module, call: ast.Call, state: ast.expr) -> Code:
    """The state dict; a shallow copy where its name is used again afterwards."""
    if isinstance(state, ast.Name) and _is_used_after(module, call, state.id):
        return code(module, "dict({state})", state=state)
    return code(module, "{state}", state=state)


def _is_used_after(module: Module, call: ast.Call, name: str) -> bool:
    scope, end = module.scope_of(call), module.span(module.statement(call)).end
    return any(
        isinstance(node, ast.Name)
        and node.id == name
        and isinstance(node.ctx, ast.Load)
        and module.span(node).start > end
        and module.scope_of(node) is scope
        for node in module.nodes(ast.Name)
    )
