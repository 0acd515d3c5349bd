"""The module that was wrapped, under the name it had before."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from codemods.analysis.arguments import argument_for, is_bound_call
from codemods.rule import Finding, Module, No, Project, WrapCall, finding, rule

_READ = re.compile(r"\.(numel|shape|ndim|size|dim|data|grad|norm)\b")
"""What a loop over parameters can ask of them that is not as it was."""
_REMEDY = (
    "ask for whole tensors: `get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))`"
)


@dataclass(frozen=True, slots=True, eq=False)
class _Wrapped:
    """`y = FSDP(x)`, or `y = shard(x)` of a function that wraps its argument.

    Attributes:
        call: the wrap call, or that of the function.
        old: `x`.
    """

    module: Module
    call: ast.Call
    old: ast.Name | ast.Attribute

    @property
    def name(self) -> str:
        return ast.unparse(self.old)


@rule("the wrapped module", {"FM532": "the module that was wrapped, under its old name"}, order=60)
def old_name(project: Project) -> Iterator[Finding]:
    """After `y = FSDP(x)` the names `x` and `y` meant two objects; after `fully_shard` they mean one.

    Through the old name a program went past FSDP1's wrapper. What worked there goes on working: an optimizer
    over `x.parameters()`, `x.train()`. What did not (calling `x`, loading whole tensors into it) works now,
    or is told by torch. `x.state_dict()` is the trap: FSDP1 gave this rank's part, flat, and FSDP2 gives
    DTensors; neither is the model. It is left to a person. A loop that asks its parameters for their shape,
    number or values gets a note.
    """
    for wrapped in dict.fromkeys(w for site in project.wraps for w in _wrapped_by(project, site)):
        for call in wrapped.module.calls():
            if not isinstance(call.func, ast.Attribute) or ast.unparse(call.func.value) != wrapped.name:
                continue
            if not _comes_later(wrapped, call):
                continue
            if not isinstance(project.sharded(wrapped.module, call.func.value), No):
                continue  # spoken of as a sharded model
            yield from _spoken_of(wrapped, call, call.func.attr)


def _spoken_of(wrapped: _Wrapped, call: ast.Call, method: str) -> Iterator[Finding]:
    if method == "state_dict":
        yield finding(
            wrapped.module,
            call,
            "FM532",
            f"`{wrapped.name}` was wrapped: FSDP1 gave this rank's part of it here, FSDP2 gives shards",
            remedy=_REMEDY,
            fades=True,
        )
    elif method in ("parameters", "named_parameters") and _reads(wrapped.module, call):
        yield finding(
            wrapped.module,
            call,
            "FM532",
            f"`{wrapped.name}` was wrapped, and is the sharded model now: its parameters are DTensors, whole "
            "by their shape and `numel()`, where FSDP1 showed this rank's part",
            is_note=True,
            fades=True,
        )


def _wrapped_by(project: Project, site: WrapCall) -> Iterator[_Wrapped]:
    """What a wrap call wraps under a name that lives on, in its own function or in those that call it."""
    module, old = site.module, site.wrapped
    if not isinstance(old, ast.Name | ast.Attribute):
        return
    if _is_renamed(module, site.node, old):
        yield _Wrapped(module, site.node, old)
    function = module.function(site.node)
    if not isinstance(function, ast.FunctionDef) or not isinstance(module.parent(site.node), ast.Return):
        return
    if ast.unparse(old) not in [argument.arg for argument in function.args.args]:
        return
    for home, call in project.links.calls_of(module, function):
        bound = is_bound_call(project.index, module, function, home, call)
        given = argument_for(function, ast.unparse(old), call, bound=bound)
        if isinstance(given, ast.Name | ast.Attribute) and _is_renamed(home, call, given):
            yield _Wrapped(home, call, given)


def _is_renamed(module: Module, call: ast.Call, old: ast.expr) -> bool:
    """Whether the result gets another name than the module had."""
    statement = module.parent(call)
    if not isinstance(statement, ast.Assign) or statement.value is not call:
        return False
    return all(ast.unparse(target) != ast.unparse(old) for target in statement.targets)


def _reads(module: Module, call: ast.Call) -> bool:
    """Whether the loop around asks parameters for what is not as it was."""
    for parent in module.ancestors(call):
        if isinstance(parent, ast.For | ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            return _READ.search(module.code(parent)) is not None
        if isinstance(parent, ast.stmt):
            break
    return False


def _comes_later(wrapped: _Wrapped, call: ast.Call) -> bool:
    """Whether a call is made after the wrap: further down in its function, the name not bound anew between;
    or, for an attribute, in another method of the class."""
    module = wrapped.module
    function, other = module.function(wrapped.call), module.function(call)
    start, end = module.span(wrapped.call).end, module.span(call).start
    if function is other:
        is_later = end > start and not _is_in_other_branch(module, wrapped.call, call)
        return is_later and not _is_bound_between(wrapped, start, end)
    own = module.class_of(wrapped.call)
    is_in_class = own is not None and own is module.class_of(call)
    return isinstance(wrapped.old, ast.Attribute) and is_in_class and getattr(other, "name", "") != "__init__"


def _is_in_other_branch(module: Module, one: ast.AST, other: ast.AST) -> bool:
    """Whether two places are in branches of which one run of their function takes one."""
    above: dict[ast.AST, ast.AST] = {}
    child = one
    for parent in module.ancestors(one):
        above[parent] = child
        child = parent
    child = other
    for parent in module.ancestors(other):
        if parent in above:
            is_loop = any(isinstance(a, ast.For | ast.While) for a in _within_function(module, parent))
            return isinstance(parent, ast.If) and not is_loop and _sides(parent, above[parent], child)
        child = parent
    return False


def _within_function(module: Module, node: ast.AST) -> Iterator[ast.AST]:
    for parent in module.ancestors(node):
        if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            return
        yield parent


def _sides(branch: ast.If, one: ast.AST, other: ast.AST) -> bool:
    """Whether one statement stands in the body of an `if` and another in its `else`."""
    bodies = [any(part is node for part in branch.body) for node in (one, other)]
    elses = [any(part is node for part in branch.orelse) for node in (one, other)]
    return (bodies[0] and elses[1]) or (elses[0] and bodies[1])


def _is_bound_between(wrapped: _Wrapped, start: int, end: int) -> bool:
    module = wrapped.module
    return any(
        isinstance(node, ast.Name | ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and start <= module.span(node).start < end
        and ast.unparse(node) == wrapped.name
        for node in (*module.nodes(ast.Name), *module.nodes(ast.Attribute))
    )
