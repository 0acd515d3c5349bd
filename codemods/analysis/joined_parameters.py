"""Lists of parameters or gradients that a function of torch makes one tensor, or one number, of."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from codemods.analysis.flow import reaching
from codemods.analysis.module import Module
from codemods.analysis.parameter_loops import parameter_loops
from codemods.analysis.scopes import BindingKind

if TYPE_CHECKING:
    from codemods.project import Project

_JOINING = {
    **dict.fromkeys(("cat", "concat", "concatenate", "stack", "hstack", "vstack", "_foreach_norm"), "torch"),
    **dict.fromkeys(("get_total_norm", "clip_grads_with_norm_", "parameters_to_vector"), "torch.nn.utils"),
    **dict.fromkeys(("_flatten_dense_tensors", "_flatten_sparse_tensors"), "torch._utils"),
    "vector_to_parameters": "torch.nn.utils",
}
_NUMBERS = frozenset(
    {
        "norm",
        "item",
        "sum",
        "mean",
        "max",
        "min",
        "std",
        "var",
        "numel",
        "nelement",
        "size",
        "dim",
        "any",
        "all",
    }
)
"""What makes one number of each tensor: said of the loop itself."""
_SAME = frozenset({"list", "tuple", "iter", "sorted", "reversed", "filter"})
_FLAT = frozenset({"flatten", "ravel", "reshape", "clone", "detach", "view_as_real"})
_DEEPEST = 6


def root_of(node: ast.expr) -> str:
    """`p` of `p`, `p.data`, `p.grad`, `p.grad.detach()`, `p.grad.data.norm(2)`, `p ** 2`; nothing of
    `p.to_local().norm()`, a plain tensor."""
    while isinstance(node, ast.Attribute | ast.Call | ast.BinOp):
        match node:
            case ast.Call():
                node = node.func
            case ast.BinOp():
                node = node.left
            case ast.Attribute(attr="_local_tensor" | "to_local" | "full_tensor"):
                return ""
            case ast.Attribute():
                node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def joined_parameters(project: Project) -> Iterator[tuple[Module, ast.Call, ast.expr]]:
    """`torch.cat([p.grad.flatten() for p in m.parameters()])` and its like, each with m."""
    for name, home in _JOINING.items():
        for module, call in project.calls_of(f"{home}.{name}"):
            given = call.args[:2] if name == "vector_to_parameters" else call.args[:1]
            keywords = [k.value for k in call.keywords if k.arg in ("tensors", "parameters")]
            for one in (*given, *keywords):
                yield from ((module, call, owner) for owner in _owners(project, module, one))


def _owners(project: Project, module: Module, given: ast.expr, depth: int = _DEEPEST) -> Iterator[ast.expr]:
    """Whose parameters, or values made of them one by one, are the elements of a list."""
    if not depth:
        return
    yield from project.links.parameters.iterated(module, given)
    match given:
        case ast.ListComp() | ast.GeneratorExp() | ast.SetComp():
            root = _tensor(given.elt)
            for generator in given.generators:
                bound = {n.id for n in ast.walk(generator.target) if isinstance(n, ast.Name)}
                if root in bound:
                    yield from _owners(project, module, generator.iter, depth - 1)
        case ast.Call(func=ast.Name(id="map"), args=[ast.Lambda(args=ast.arguments(args=[one])) as f, inner]):
            if _tensor(f.body) == one.arg:
                yield from _owners(project, module, inner, depth - 1)
        case ast.Call(func=ast.Name(id="map"), args=[_, inner]):
            yield from _owners(project, module, inner, depth - 1)
        case ast.Call(func=ast.Name(id=name), args=[*_, inner]) if name in _SAME:
            yield from _owners(project, module, inner, depth - 1)
        case ast.BinOp(op=ast.Add()):
            yield from _owners(project, module, given.left, depth - 1)
            yield from _owners(project, module, given.right, depth - 1)
        case ast.Name():
            yield from _of_name(project, module, given, depth - 1)


def _of_name(project: Project, module: Module, given: ast.Name, depth: int) -> Iterator[ast.expr]:
    found = module.scope_of(given).lookup(given.id)
    for binding in reaching(module, *found, given) if found is not None else ():
        value = binding.value
        if binding.kind is not BindingKind.ASSIGN or binding.unpack or value is None:
            continue
        if isinstance(value, ast.List) and not value.elts:
            yield from _filled(project, module, given)
        elif isinstance(value, ast.ListComp | ast.Call | ast.BinOp | ast.Name):
            yield from _owners(project, module, value, depth)


def _filled(project: Project, module: Module, given: ast.Name) -> Iterator[ast.expr]:
    """`m` of `for p in m.parameters(): xs.append(p.grad.view(-1))` before the place where `xs` stands."""
    scope, place = module.scope_of(given), module.span(given).start
    calls = [
        call
        for call in module.called("append")
        if isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == given.id
        and module.scope_of(call) is scope
        and module.span(call).end <= place
        and len(call.args) == 1
    ]
    for loop in parameter_loops(project, module) if calls else ():
        for call in calls if isinstance(loop.node, ast.For) else ():
            is_inside = module.span(loop.node).holds(module.span(call))
            if is_inside and _tensor(call.args[0]) in loop.parameters:
                yield loop.owner


def _tensor(node: ast.expr) -> str:
    """`p` of what is a tensor made of p: `p.grad`, `torch.flatten(p.data)`, `p.grad.detach().view(-1)`."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr=name), args=[inner, *_]):
            return _tensor(inner) if name in _FLAT else ""
    return (
        ""
        if any(isinstance(n, ast.Attribute) and n.attr in _NUMBERS for n in _chain(node))
        else root_of(node)
    )


def _chain(node: ast.expr) -> Iterator[ast.expr]:
    """What an expression is made of from its end to its beginning, arguments left out."""
    while isinstance(node, ast.Attribute | ast.Call | ast.BinOp):
        yield node
        match node:
            case ast.Call():
                node = node.func
            case ast.BinOp():
                node = node.left
            case ast.Attribute():
                node = node.value
