"""Modules and parameters that are put into a model once it is sharded.

Source: `torch/distributed/fsdp/_fully_shard/_fully_shard.py` (`fully_shard` takes what is there), FSDP1's
`__setattr__`, which puts a module beside the wrapped one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from codemods.parts_of_models import model_of
from codemods.rule import CallValue, Finding, Maybe, Module, No, Project, finding, options, rule

_WITH_PARAMETERS = re.compile(
    r"torch\.nn\.(?:.*\.)?(?:Lazy)?(?:Linear|Bilinear|Conv\w+|Embedding\w*|\w*Norm\w*|LSTM\w*|GRU\w*|RNN\w*"
    r"|MultiheadAttention|Transformer\w*|Parameter|Sequential|ModuleList|ModuleDict|ParameterList)"
)
_ADD = ("add_module", "register_module", "register_parameter")


@rule("replaced module", {"FM538": "a module or parameter is put into a sharded model"})
def modules_after_wrap(project: Project) -> Iterator[Finding]:
    """`model.head = nn.Linear(...)` behind the wrap puts plain parameters into a sharded model.

    `fully_shard` shards what is there when it is called. A head that is replaced later stays whole on every
    rank, and nothing averages its gradients: ranks train heads of their own. Under FSDP1 the same assignment
    put the new head on the wrapper, beside the model, which went on with its old one; only one put into the
    wrapped module was used, and it was not averaged either. Replace modules before the model is sharded, or
    shard the new one too: `fully_shard(model.head)`, and give it to the optimizer.
    """
    for module in project.looked_at if project.wraps else ():
        for node, holder, value in _put(module):
            if not any(project.links.may_be_sharded(part) for part in _chain(holder)):
                continue
            if not _has_parameters(project, module, value) or _is_sharded_in(project, value):
                continue
            holding = model_of(project, module, holder)[1]
            if isinstance(holding, No):
                continue
            yield finding(
                module,
                node,
                "FM538",
                "what is put into a sharded model is not sharded: every rank keeps one of its own, and no "
                "gradients are averaged",
                remedy="put it into the model before the model is sharded",
                is_note=isinstance(holding, Maybe),  # it can be the model before the wrap
            )


def _is_sharded_in(project: Project, value: ast.expr) -> bool:
    """Whether what is put in is wrapped there: `nn.ModuleList(FSDP(block) for block in model.blocks)`."""
    nodes = set(ast.walk(value))
    return any(site.node in nodes for site in project.wraps)


def _put(module: Module) -> Iterator[tuple[ast.AST, ast.expr, ast.expr]]:
    """What is assigned to attributes and elements, or added by a method: the place, the holder, the value."""
    for node in module.nodes(ast.Assign):
        assert isinstance(node, ast.Assign)
        for target in node.targets:
            if isinstance(target, ast.Attribute | ast.Subscript):
                yield node, target.value, node.value
    for call in (call for name in _ADD for call in module.called(name)):
        if isinstance(call.func, ast.Attribute) and len(call.args) == 2:
            yield call, call.func.value, call.args[1]
    for call in module.called("setattr"):
        if isinstance(call.func, ast.Name) and len(call.args) == 3:
            yield call, call.args[0], call.args[2]


def _chain(node: ast.expr) -> Iterator[ast.expr]:
    """`m.trunk[0]`, `m.trunk`, `m`."""
    yield node
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
        yield node


def _has_parameters(project: Project, module: Module, node: ast.expr) -> bool:
    """Whether an expression is a module with parameters, or a parameter, made in the same function."""
    function = module.function(node)
    for value in options(project.evaluate(module, node)):
        made_at = value.origin
        if not isinstance(value, CallValue) or made_at.module is not module:
            continue
        if module.function(made_at.node) is not function:
            continue
        made, home = value.function.node, value.function.module
        if _WITH_PARAMETERS.fullmatch(value.function.name):
            return True
        if isinstance(made, ast.ClassDef) and home and project.links.classes.is_module(made, home):
            return True
    return False
