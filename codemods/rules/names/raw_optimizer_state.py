"""`optimizer.state_dict()` of a sharded model's optimizer, saved as it is.

Source: `torch/optim/optimizer.py`; FSDP1's values were flat parts of this rank, FSDP2's are DTensors.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.analysis.holding import Instance
from codemods.analysis.module import is_own
from codemods.analysis.spoken_names import says_model, says_optimizer
from codemods.rule import (
    Finding,
    MethodCall,
    Module,
    No,
    Project,
    finding,
    is_under_rank0,
    is_where_other_branch_shards,
    rule,
)

_REMEDY = (
    "use `get_optimizer_state_dict(model, optimizer, options=StateDictOptions(full_state_dict=True, "
    "cpu_offload=True))` on every rank"
)


@rule("optimizer.state_dict", {"FM409": "an optimizer's own state dict over sharded parameters"})
def raw_optimizer_state(project: Project) -> Iterator[Finding]:
    """`optimizer.state_dict()` holds this rank's part; files written before hold flat parts.

    Saved and loaded by each rank for itself this keeps working, with DTensors in the file. Files that FSDP1
    wrote this way do not load into the new optimizer: convert them with `fsdp-migrate convert-ckpt`. Saved
    on rank 0 only, the file holds one rank's part, as it did under FSDP1: that needs a person. Nothing is
    said of `thing.state_dict()` where schedulers and other objects of the project come by as well."""
    for call in project.method_calls("state_dict"):
        if call.node.args or call.node.keywords or _is_of_groups(call):
            continue
        if isinstance(project.optimizer_of(call.module, call.receiver), No):
            continue
        if not isinstance(project.sharded(call.module, call.receiver), No):
            continue
        if _is_any_object(project, call.module, call.receiver) or _is_of_other_heir(project, call):
            continue
        if _is_of_plain_model(project, call):
            continue
        partial = is_under_rank0(call.module, call.node)
        text = ast.unparse(call.receiver)
        if is_where_other_branch_shards(call.module, call.node, text):
            continue
        yield finding(
            call.module,
            call.node,
            "FM409",
            f"`{text}.state_dict()` is this rank's part"
            + (
                ", and only rank 0's is saved here"
                if partial
                else "; files that FSDP1 wrote this way need converting"
            ),
            remedy=_REMEDY if partial else "",
            is_note=not partial,
        )


def _is_of_groups(call: MethodCall) -> bool:
    """Whether only the groups are read, which hold numbers of parameters and settings: no tensors."""
    match call.module.parent(call.node):
        case ast.Subscript(slice=ast.Constant(value="param_groups")):
            return True
    return False


def _is_any_object(project: Project, module: Module, receiver: ast.expr) -> bool:
    """Whether objects of the project's classes, optimizers left out, come by under a name that does not say
    what they are."""
    if says_optimizer(receiver):
        return False
    held = project.links.held(module, receiver)
    return any(
        isinstance(h, Instance)
        and "optim" not in h.node.name.lower()
        and not project.links.classes.is_optimizer(h.node, h.module)
        for h in held
    )


def _is_of_other_heir(project: Project, call: MethodCall) -> bool:
    """Whether the method also names the model that the optimizer is for, and there it is not sharded: classes
    that shard it have another method in its place."""
    function = call.module.function(call.node)
    owners = {
        ast.unparse(owner)
        for home, made in project.links.optimizers(call.module, call.receiver)
        for owner in project.links.parameter_owners(home, made)
    }
    here = [
        node
        for node in (ast.walk(function) if function is not None else ())
        if isinstance(node, ast.Attribute) and ast.unparse(node) in owners
    ]
    return bool(here) and all(isinstance(project.sharded(call.module, node), No) for node in here)


def _is_of_plain_model(project: Project, call: MethodCall) -> bool:
    """Whether the class has the optimizer made of a model that is not sharded there, by a function that other
    classes give sharded ones: `self.optimizer = build_optimizer(self.raw_model)`."""
    module, receiver = call.module, call.receiver
    if not isinstance(receiver, ast.Attribute) or not is_own(receiver):
        return False
    owner = module.class_of(receiver)
    made = [
        store.value
        for store in project.links.stores.here(module, receiver.attr)
        if ast.unparse(store.holder) == "self" and module.class_of(store.target) is owner
    ]
    models = [[a for a in m.args if says_model(a)] if isinstance(m, ast.Call) else [] for m in made]
    return bool(models) and all(
        given and all(isinstance(project.sharded(module, model), No) for model in given) for given in models
    )
