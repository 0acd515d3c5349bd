"""`torch.nn.utils.clip_grad_norm_` on the parameters of a sharded model.

Source: `torch/nn/utils/clip_grad.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.analysis.far_parameters import FarParameters
from codemods.analysis.module import last_name
from codemods.analysis.optimizer_classes import trained
from codemods.analysis.spoken_names import is_for_fsdp2
from codemods.analysis.summoned import is_model_summoned, is_summoned
from codemods.ignored_parameters import ignored_arguments
from codemods.kept_parameters import holder_of
from codemods.parts_of_models import model_of
from codemods.rule import (
    Finding,
    Holding,
    Maybe,
    Module,
    No,
    Project,
    Safety,
    Sharded,
    argument,
    code,
    finding,
    is_behind_branch_that_shards,
    is_result_used,
    is_where_not_instance,
    is_where_other_branch_shards,
    parameter_loops,
    replace,
    rule,
)
from codemods.tensor_parallel import is_tensor_parallel

_FUNCTIONS = ("torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad.clip_grad_norm_")


@rule("torch.nn.utils.clip_grad_norm_", {"FM302": "PyTorch's own clipping on sharded parameters"})
def torch_clip(project: Project) -> Iterator[Finding]:
    """`torch.nn.utils.clip_grad_norm_(model.parameters(), c)` on a sharded model changes its meaning.

    On FSDP1 parameters it clipped each rank by the norm of what that rank held, a number that differs per
    rank. On FSDP2 parameters it clips by the norm of the whole gradient. The new behaviour is what was
    meant, but training curves change, so a person should know. With `--unsafe-fixes` a used result gets
    `.full_tensor()`, because it is a DTensor now; nothing else has to be done. The same is said where the
    parameters are those of an optimizer's group, `clip_grad_norm_(group["params"], c)`, or of a part of the
    model, `clip_grad_norm_(model.backbone.parameters(), c)`, and where a list of them was kept before, in an
    attribute or for a function that clips.

    Where modules are left out of the shards PyTorch's function stops, because their gradients are plain, and
    where layers are tensor parallel it stops, because theirs lie on another mesh: with `--unsafe-fixes` the
    helper module's takes its place.

    Within `summon_full_params` gradients are whole before and after: nothing is said. Nor is it of a method
    that a class with a sharded model overrides to clip by FSDP1's own."""
    for name in _FUNCTIONS:
        for module, call in project.calls_of(name):
            owner, holding = _owner(project, module, call)
            if owner is None or isinstance(holding, No):
                continue
            if (
                _already_full(module, call)
                or _is_where_none(project, module, call, owner)
                or _is_overridden(project, module, call)
            ):
                continue
            if _is_mixed(project, module, call, holding):
                yield _mixed(project, module, call)
                continue
            edits = []
            if is_result_used(module, call):
                edits = [replace(module, call, code(module, "{call}.full_tensor()", call=call))]
            yield finding(
                module,
                call,
                "FM302",
                "FSDP1 clipped every rank by its own part of the gradient here; FSDP2 clips by the "
                "whole gradient's norm",
                remedy="expect other numbers than before (these are right)"
                + (" and add `.full_tensor()` to the norm" if edits else ""),
                safety=Safety.UNSAFE if edits else Safety.MANUAL,
                edits=edits,
                is_note=isinstance(holding, Maybe) and not edits,
            )


def _is_mixed(project: Project, module: Module, call: ast.Call, holding: Holding) -> bool:
    """Whether some of a model's parameters are left out of its shards, or on another mesh, in a call with
    arguments that the helper module's function takes."""
    is_plain = {k.arg for k in call.keywords} <= {"max_norm", "norm_type"} and len(call.args) <= 3
    sites = () if isinstance(holding, No) else holding.sites
    is_left_out = any(ignored_arguments(project, site)[0] for site in sites)
    is_parallel = isinstance(holding, Sharded) and is_tensor_parallel(project, module.path)
    return is_plain and (is_left_out or is_parallel)


def _mixed(project: Project, module: Module, call: ast.Call) -> Finding:
    why = "a mixture of sharded and plain gradients, and parameters are ignored by the wrap"
    if is_tensor_parallel(project, module.path):
        why = "gradients on several meshes, and layers are tensor parallel"
    return finding(
        module,
        call,
        "FM302",
        "FSDP1 clipped every rank by its own part of the gradient here; PyTorch's function stops at " + why,
        remedy="where such gradients are made use the helper module's `clip_grad_norm_`, which "
        "`--unsafe-fixes` writes; expect other numbers than before (these are right)",
        safety=Safety.UNSAFE,
        edits=[replace(module, call.func, code(None, "{helper.clip_grad_norm_}"))],
    )


def _owner(project: Project, module: Module, call: ast.Call) -> tuple[ast.expr | None, Holding]:
    """The sharded model whose parameters are given, or the optimizer that trains one, if there is one.

    Of parameters that come from another function, what is given stands for the model.
    """
    given = argument(call, 0, "parameters")
    owners = list(_owners(project, module, given)) if given is not None else []
    for owner in owners:
        model, holding = model_of(project, module, owner)
        holding = trained(project, module, owner) if isinstance(holding, No) else holding
        if not isinstance(holding, No):
            return model, holding
    if owners or _clips_by_itself(project, module, call):
        return None, No()
    if given is None:
        return None, No()
    return given, holder_of(project, FarParameters(project.links).within(module, given))


def _owners(project: Project, module: Module, given: ast.expr) -> Iterator[ast.expr]:
    """Whose parameters are given, all of them or one in each turn of a loop."""
    yield from project.links.parameters.iterated(module, given)
    for loop in parameter_loops(project, module) if isinstance(given, ast.Name) else ():
        if ast.unparse(given) in loop.parameters and loop.node in module.ancestors(given):
            yield loop.owner


def _is_where_none(project: Project, module: Module, call: ast.Call, owner: ast.expr) -> bool:
    """Whether the parameters are whole where they are clipped, or of a model that is not sharded there."""
    groups = module.parent(owner)
    is_optimizer = isinstance(groups, ast.Attribute) and groups.attr == "param_groups"
    if is_summoned(module, call) if is_optimizer else is_model_summoned(module, call, owner):
        return True
    models = _clipped_by_themselves(project, module) if is_optimizer else [owner]
    return any(
        is_where_not_instance(module, call, text)
        or is_where_other_branch_shards(module, call, text)
        or is_behind_branch_that_shards(module, call, text)
        for text in map(ast.unparse, models)
    )


def _clipped_by_themselves(project: Project, module: Module) -> list[ast.expr]:
    """`m` of each `m.clip_grad_norm_(...)` of a sharded model: what stands beside an optimizer's groups."""
    receivers = [c.func.value for c in module.called("clip_grad_norm_") if isinstance(c.func, ast.Attribute)]
    return [receiver for receiver in receivers if not isinstance(project.sharded(module, receiver), No)]


def _clips_by_itself(project: Project, module: Module, call: ast.Call) -> bool:
    """Whether the function has FSDP1's own clipping for sharded models, or the place is FSDP2's already."""
    function = module.function(call)
    others = _clipped_by_themselves(project, module)
    return is_for_fsdp2(module, call) or any(module.function(other) is function for other in others)


def _is_overridden(project: Project, module: Module, call: ast.Call) -> bool:
    """Whether a place is in a method that every class with FSDP in it overrides, to clip by FSDP1's own
    function: what comes here by `super()` is another model."""
    owner, method = module.class_of(call), module.function(call)
    if owner is None or not isinstance(method, ast.FunctionDef):
        return False
    if any(site.module.class_of(site.node) is owner for site in project.wraps):
        return False
    overriding: list[ast.ClassDef] = []
    others: list[ast.ClassDef] = []
    for heir, home in project.links.classes.heirs(owner, module):
        own = next((n for n in heir.body if isinstance(n, ast.FunctionDef) and n.name == method.name), None)
        clips = own is not None and any(
            home.function(node) is own for node in _clipped_by_themselves(project, home)
        )
        (overriding if clips else others).append(heir)
    said = (last_name(n) for one in others for n in ast.walk(one) if isinstance(n, ast.Name | ast.Attribute))
    return bool(overriding) and not any("fsdp" in name.lower() for name in said)


def _already_full(module: Module, call: ast.Call) -> bool:
    parent = module.parent(call)
    return isinstance(parent, ast.Attribute) and parent.attr == "full_tensor"
