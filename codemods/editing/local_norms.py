"""A gradient norm of one's own: squares summed over the parameters and then over the ranks.

Source: `torch/distributed/tensor/_api.py` (`to_local`): the shards of all ranks are the whole gradient, as
FSDP1's parts were, so the sum over the ranks stays what it was.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TYPE_CHECKING

from codemods.analysis.module import Module
from codemods.analysis.parameter_loops import ParameterLoop
from codemods.analysis.state_dicts import argument
from codemods.model import Edit, Span

if TYPE_CHECKING:
    from codemods.project import Project

_SAME = frozenset({"detach", "float", "double", "to", "item", "cpu", "clone"})
_REDUCED = frozenset({"torch.distributed.all_reduce", "torch.distributed.distributed_c10d.all_reduce"})


def local_norm_edits(
    project: Project, module: Module, loop: ParameterLoop, nodes: Iterable[ast.AST]
) -> list[Edit]:
    """`.to_local()` behind every gradient of a loop that sums squares and reduces the sum over the ranks;
    empty where anything else is done with a value in it. All parameters must be sharded.

    Args:
        nodes: what in the loop reads values of parameters or gradients.
    """
    edits: list[Edit] = []
    for node in nodes:
        squares = _squares_around(module, loop, node)
        gradient = _gradient(squares, loop) if squares is not None else None
        if squares is None or gradient is None:
            return []
        total = _total(module, loop, squares)
        if total is None or not _is_reduced(project, module, loop, total):
            return []
        end = module.span(gradient).end
        edits.append(Edit(module.path, Span(end, end), (".to_local()",)))
    return edits


def _squares_around(module: Module, loop: ParameterLoop, node: ast.AST) -> ast.expr | None:
    """The largest expression around a node that is a sum of squares of one gradient."""
    found = node if isinstance(node, ast.expr) and _squared(node) is not None else None
    for parent in module.ancestors(node):
        if not isinstance(parent, ast.expr):
            break
        found = parent if _squared(parent) is not None else found
    return found


def _squared(node: ast.expr) -> ast.expr | None:
    """`g` of `g.norm(2) ** 2`, `g.norm(p) ** p`, `g.pow(2).sum()`, `torch.norm(g).item() ** 2` and their
    like."""
    node = _stripped(node)
    match node:
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Name() | ast.Attribute() as order):
            return _normed(_stripped(left), ast.unparse(order))
    powered = _powered(node)
    if powered is not None:
        return _normed(powered)
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr="sum"), args=[value], keywords=[]):
            return _powered(_stripped(value))
        case ast.Call(func=ast.Attribute(value=value, attr="sum"), args=[], keywords=[]):
            return _powered(_stripped(value))
    return None


def _powered(node: ast.expr) -> ast.expr | None:
    """`g` of `g ** 2`, `g.pow(2)`, `g.square()`."""
    match node:
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=2 | 2.0)):
            return _stripped(left)
        case ast.Call(func=ast.Attribute(value=value, attr="pow"), args=[ast.Constant(value=2 | 2.0)]):
            return _stripped(value)
        case ast.Call(func=ast.Attribute(value=value, attr="square"), args=[]):
            return _stripped(value)
    return None


def _normed(node: ast.expr, order: str = "") -> ast.expr | None:
    """`g` of `g.norm()`, `g.norm(2)`, `torch.norm(g, 2)`, `torch.linalg.vector_norm(g)`.

    Args:
        order: the expression that the kind of norm has to be, where it is not 2.
    """
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    is_function = ast.unparse(node.func) in ("torch.norm", "torch.linalg.vector_norm")
    if not is_function and node.func.attr != "norm":
        return None
    orders = [*node.args[is_function:], *(k.value for k in node.keywords if k.arg in ("p", "ord"))]
    others = [k for k in node.keywords if k.arg not in ("p", "ord", "dtype")]
    if others or len(orders) > 1 or (order and not orders):
        return None
    if not all(ast.unparse(o) == order or (not order and ast.unparse(o) in ("2", "2.0")) for o in orders):
        return None
    return _stripped(node.args[0] if is_function else node.func.value)


def _stripped(node: ast.expr) -> ast.expr:
    """Without what changes no value of a norm: `.detach()`, `.data`, `.float()`, `.item()`."""
    while True:
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr=name)) if name in _SAME:
                node = value
            case ast.Attribute(value=value, attr="data"):
                node = value
            case _:
                return node


def _gradient(squares: ast.expr, loop: ParameterLoop) -> ast.Attribute | None:
    """`p.grad` that is squared, of a parameter of the loop."""
    match _squared(squares):
        case ast.Attribute(value=ast.Name(id=name), attr="grad") as gradient if name in loop.parameters:
            return gradient
    return None


def _total(module: Module, loop: ParameterLoop, squares: ast.expr) -> str | None:
    """The name that the squares are added up under: `total += squares`, `total = sum(squares for ...)`."""
    parent = module.parent(squares)
    match parent:
        case ast.AugAssign(target=ast.Name(id=name), op=ast.Add()) if isinstance(loop.node, ast.For):
            return name
        case ast.GeneratorExp() | ast.ListComp() if loop.node in parent.generators and parent.elt is squares:
            call = module.parent(parent)
            assignment = module.parent(call) if call is not None else None
            match call, assignment:
                case ast.Call(func=ast.Name(id="sum")), ast.Assign(targets=[ast.Name(id=name)]):
                    return name
    return None


def _is_reduced(project: Project, module: Module, loop: ParameterLoop, total: str) -> bool:
    """Whether the sum, or a tensor made of it, is summed over ranks later in the function, before anything
    else is done with it."""
    end = module.span(module.statement(loop.owner)).end
    if isinstance(loop.node, ast.For):
        end = module.span(loop.node).end
    function = module.function(loop.owner)
    names = {total}
    reads = sorted(
        (
            n
            for n in module.nodes(ast.Name)
            if isinstance(n, ast.Name)
            and isinstance(n.ctx, ast.Load)
            and module.function(n) is function
            and module.span(n).start >= end
        ),
        key=lambda n: module.span(n).start,
    )
    for read in (n for n in reads if n.id in names):
        call, statement = module.parent(read), module.statement(read)
        if isinstance(call, ast.Call) and read in call.args:
            symbol = project.resolve(module, call.func)
            if symbol is not None and symbol.name in _REDUCED:
                op = argument(call, 1, "op")
                return op is None or ast.unparse(op).endswith("SUM")
            is_tensor_of_it = ast.unparse(call.func) in ("torch.tensor", "torch.as_tensor")
            if is_tensor_of_it and isinstance(statement, ast.Assign):
                names |= {n.id for n in statement.targets if isinstance(n, ast.Name)}
                continue
        return False
    return False
