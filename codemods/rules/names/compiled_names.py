"""Names in the state dicts of a model that is sharded and then compiled.

Source: `torch/_dynamo/eval_frame.py` (`OptimizedModule._orig_mod`),
`torch/distributed/checkpoint/state_dict.py` (`_get_fqns` leaves that prefix out).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.rule import Finding, Maybe, Module, No, Project, Sharded, WrapCall, finding, rule

_COMPILE = "torch.compile"
_STATIC = ("optim_state_dict", "full_optim_state_dict", "sharded_optim_state_dict", "state_dict_type")


@rule("torch.compile", {"FM529": "names in state dicts of a compiled model"})
def compiled_names(project: Project) -> Iterator[Finding]:
    """`model = torch.compile(model)`, before or after the wrap, put `_orig_mod.` before every name in the
    model's state dicts.

    `get_model_state_dict` and its like leave that prefix out: files have the names of the plain model, and
    those that FSDP1 wrote have other ones. Loading them says that keys are missing; `fsdp-migrate
    convert-ckpt` takes the prefix off. `model.compile()` compiles in place and changes no name.
    """
    asked: dict[WrapCall, set[str]] = {}
    for module, model in _asked_for_state(project):
        for site in _sites(project, module, model):
            asked.setdefault(site, set()).add(_last_name(model))
    for module, call in project.calls_of(_COMPILE):
        target = _target(module, call)
        if target is None or not call.args:
            continue
        compiled = call.args[0]
        sites = {*_sites(project, module, compiled), *_wrapped_later(project, module, call, target)}
        words = {word for site in sites for word in asked.get(site, ())}
        # Under another name the plain model can be asked for its state.
        if words and (ast.unparse(target) == ast.unparse(compiled) or words == {_last_name(target)}):
            yield finding(
                module,
                call,
                "FM529",
                "names in state dicts of this model began with `_orig_mod.`, and do so no more: files that "
                "FSDP1 wrote need converting",
                is_note=True,
            )


def _asked_for_state(project: Project) -> Iterator[tuple[Module, ast.expr]]:
    """The models that are asked for their state, or loaded."""
    for use in project.method_calls("state_dict", "load_state_dict"):
        yield use.module, use.receiver
    for use in project.static_calls(*_STATIC):
        if use.node.args:
            yield use.module, use.node.args[0]


def _sites(project: Project, module: Module, model: ast.expr) -> frozenset[WrapCall]:
    match project.sharded(module, model):
        case Sharded(sites) | Maybe(sites):
            return sites
        case No():
            return frozenset()


def _wrapped_later(project: Project, module: Module, call: ast.Call, target: ast.expr) -> Iterator[WrapCall]:
    """The wraps below a call, in its function, of the model that it compiles."""
    end, function = module.span(call).end, module.function(call)
    for site in project.wraps:
        is_here = site.module is module and module.function(site.node) is function
        is_it = site.wrapped is not None and ast.unparse(site.wrapped) == ast.unparse(target)
        if is_here and is_it and end < module.span(site.node).start:
            yield site


def _target(module: Module, call: ast.Call) -> ast.expr | None:
    parent = module.parent(call)
    if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
        return parent.targets[0]
    return None


def _last_name(node: ast.expr) -> str:
    return ast.unparse(node).rpartition(".")[2]
