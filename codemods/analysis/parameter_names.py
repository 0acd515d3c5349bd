"""The names that a parameter, and what is made of it, have in a loop over parameters. Pure."""

from __future__ import annotations

import ast

from codemods.analysis.joined_parameters import root_of
from codemods.analysis.module import Module
from codemods.analysis.name_tests import body_of
from codemods.analysis.parameter_loops import ParameterLoop, looped_over

_NO_SHARDS = {"full_tensor", "item", "numel", "size", "to_local"}
"""Methods of a sharded tensor that give something else."""


def names_of(module: Module, loop: ParameterLoop, *, with_state: bool) -> tuple[set[str], set[str]]:
    """The names that a parameter, its gradient, or lists of them have in a loop, and those of what is
    computed.

    `flat = p.grad.view(-1)`, `tensors = [p.grad]`, `for x in tensors`.

    Args:
        with_state: an optimizer's state of it, and what is made of these, is looked for: `exp_avg =
            self.state[p]["exp_avg"]`, `update = exp_avg / denom`.
    """
    names, computed, states = set(loop.parameters), set[str](), set[str]()
    for part in body_of(module, loop):
        match part:
            case ast.Assign(targets=[ast.Name(id=name), *_], value=value):
                pass
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                pass
            case ast.For() if part is not loop.node:
                for target, source in looped_over(part.target, part.iter):
                    if isinstance(target, ast.Name) and root_of(source) in names:
                        names.add(target.id)
                continue
            case _:
                continue
        made = value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
        if any(root_of(one) in names for one in made):
            names.add(name)
        elif with_state and _is_computed(value, names | computed, states):
            computed.add(name)
        elif with_state and _is_state(value, names):
            states.add(name)
    return names, computed


def _is_state(value: ast.expr, names: set[str]) -> bool:
    """`self.state[p]` of a parameter p."""
    match value:
        case ast.Subscript(value=ast.Attribute(attr="state"), slice=ast.Name(id=name)):
            return name in names
    return False


def _is_computed(value: ast.expr, names: set[str], states: set[str]) -> bool:
    """Whether an expression is a tensor of an optimizer's state (`step` is no sharded one), or is made of
    sharded tensors by arithmetic or by functions of torch."""
    match value:
        case ast.Subscript(value=ast.Name(id=state), slice=ast.Constant(value=key)):
            return state in states and key != "step"
        case ast.Name(id=name):
            return name in names
        case ast.BinOp(left=left, right=right):
            return _is_computed(left, names, states) or _is_computed(right, names, states)
        case ast.UnaryOp(operand=operand):
            return _is_computed(operand, names, states)
        case ast.Call(func=ast.Attribute(value=ast.Name(id="torch")), args=args):
            return any(_is_computed(one, names, states) for one in args)
        case ast.Call(func=ast.Attribute(value=owner, attr=method)):
            return method not in _NO_SHARDS and _is_computed(owner, names, states)
    return False
