"""Parameters of a sharded model that are trained again after they were frozen.

Source: `torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py` (`_init_mp_dtypes`, called once, takes the
gradients' dtype from the trainable parameters; torch 2.14 takes it from all)."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.analysis.flow import reaching
from codemods.parts_of_models import model_of
from codemods.rule import (
    Finding,
    Literal,
    Module,
    No,
    Project,
    WrapCall,
    finding,
    options,
    parameter_loops,
    rule,
)
from codemods.wrap_site import arguments_of


@rule("requires_grad", {"FM536": "parameters of a sharded model become trainable"})
def unfrozen(project: Project) -> Iterator[Finding]:
    """`model.encoder.requires_grad_(True)` behind the wrap can stop the next backward pass.

    Up to torch 2.13, FSDP2 settles at a unit's first forward pass what dtype its gradients have, by its
    trainable parameters. A unit that is frozen as a whole then, and trained later, raises "attempting to
    assign a gradient with dtype ..." where `mixed_precision` gave a `param_dtype`; FSDP1 went on. Freeze such
    a unit after the first forward pass. Noted where parameters of a model that is wrapped with
    `mixed_precision` become trainable: a discriminator's in turns with a generator's, or layers one after
    the other."""
    for module in project.looked_at:
        for node, owner in _trained(project, module):
            _, holding = model_of(project, module, owner)
            if isinstance(holding, No) or _is_made_here(project, module, owner):
                continue
            if any(_computes_in_low_precision(project, site) for site in holding.sites):
                yield finding(
                    module,
                    node,
                    "FM536",
                    "a unit whose parameters were all frozen at its first forward pass cannot be trained "
                    "later with mixed precision before torch 2.14: freeze it after that pass",
                    is_note=True,
                )


def _is_made_here(project: Project, module: Module, node: ast.expr) -> bool:
    """Whether the function builds the model, whose parts are wrapped later if they are."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    function = module.function(node)
    if isinstance(function, ast.FunctionDef) and function.name == "__init__":
        return True
    if not isinstance(node, ast.Name) or not isinstance(project.sharded(module, node), No):
        return False
    found = module.scope_of(node).lookup(node.id)
    return found is not None and any(isinstance(b.value, ast.Call) for b in reaching(module, *found, node))


def _trained(project: Project, module: Module) -> Iterator[tuple[ast.AST, ast.expr]]:
    """Places where parameters become trainable, and the model or the part whose they are."""
    for call in module.called("requires_grad_"):
        if isinstance(call.func, ast.Attribute) and _can_be_true(project, module, call.args[:1]):
            yield call, call.func.value
    for loop in parameter_loops(project, module) if module.attributes("requires_grad") else ():
        if isinstance(loop.node, ast.For):
            for node in (n for statement in loop.node.body for n in ast.walk(statement)):
                if _is_set(project, module, node, loop.parameters):
                    yield node, loop.owner


def _is_set(project: Project, module: Module, node: ast.AST, names: frozenset[str]) -> bool:
    """`p.requires_grad = True` for one of some names."""
    match node:
        case ast.Assign(targets=[ast.Attribute(value=ast.Name(id=name), attr="requires_grad")], value=value):
            return name in names and _can_be_true(project, module, [value])
    return False


def _can_be_true(project: Project, module: Module, given: list[ast.expr]) -> bool:
    values = [value for node in given for value in options(project.evaluate(module, node))]
    return not values or any(not isinstance(value, Literal) or bool(value.value) for value in values)


def _computes_in_low_precision(project: Project, site: WrapCall) -> bool:
    arguments, unknown = arguments_of(project, site)
    given = [v for a in arguments if a.name == "mixed_precision" for v in options(a.value)]
    return unknown or any(not isinstance(value, Literal) or value.value is not None for value in given)
