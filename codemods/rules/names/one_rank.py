"""Gathering on one rank only.

Source: `torch/distributed/checkpoint/state_dict.py`, `DTensor.full_tensor` (all-gathers)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from codemods.analysis.module import last_name
from codemods.analysis.summoned import is_model_summoned
from codemods.plain_tests import is_test_path
from codemods.rule import (
    Finding,
    Maybe,
    MethodCall,
    Module,
    No,
    Project,
    Sharded,
    branches_before,
    finding,
    is_under_rank0,
    is_where_not_instance,
    is_where_other_branch_shards,
    leaves,
    rule,
    values_named,
)

_RANK0_ONLY = re.compile(
    r"rank_?(?:zero|0)_only|on_(?:main|master)(?:_process)?|(?:main|master)(?:_process)?_only"
)
"""Decorators: `@rank_zero_only`, `@accelerator.on_main_process`, `@master_only`."""
_METHODS = ("state_dict", "summon_full_params", "clip_grad_norm_")
_STATIC = ("summon_full_params", "optim_state_dict", "full_optim_state_dict", "sharded_optim_state_dict")


@rule("one rank", {"FM312": "parameters are gathered on one rank only"})
def one_rank(project: Project) -> Iterator[Finding]:
    """`if rank == 0: torch.save(model.state_dict())` waits for the other ranks for ever.

    Whole parameters are gathered by all ranks together. Under FSDP1 this hung too, except with NO_SHARD or on
    one rank, where nothing had to be gathered, and except `model.module.state_dict()`, which gave what this
    rank had of the root's parameters. Gather on every rank and save on one:

        state = model.state_dict()
        if rank == 0:
            torch.save(state, path)

    The condition can also stand around a call of the function that gathers, or in its decorator.
    """
    for call in _gathering(project):
        module, node, text = call.module, call.node, ast.unparse(call.receiver)
        if is_where_not_instance(module, node, text) or is_where_other_branch_shards(module, node, text):
            continue
        if is_model_summoned(module, node, call.receiver):
            continue
        if _is_of_one_rank(project, module, node):
            yield finding(
                module,
                node,
                "FM312",
                "this gathers parameters and stands where only one rank comes: the ranks wait for each other",
                remedy="call it on every rank, and let one rank use the result",
            )


def _gathering(project: Project) -> Iterator[MethodCall]:
    """Calls that need every rank, each once."""
    static = list(project.static_calls(*_STATIC))
    yield from static
    seen = {call.node for call in static}
    for call in project.method_calls(*_METHODS):
        holding = project.sharded(call.module, call.receiver) if call.node not in seen else No()
        is_inner = isinstance(holding, Maybe) and _is_inner(call.module, call.receiver)
        if isinstance(holding, Sharded) or is_inner:
            yield call


def _is_inner(module: Module, node: ast.expr) -> bool:
    """Whether something is, or is a name of, `model.module`: FSDP1 took it without the other ranks."""
    parts = (part for value in values_named(module, node) for part in ast.walk(value))
    return any(isinstance(part, ast.Attribute) and part.attr == "module" for part in parts)


def _is_of_one_rank(project: Project, module: Module, node: ast.AST, depth: int = 3) -> bool:
    """Whether a place can be reached by one rank only: by its conditions, or by those of the calls of its
    function."""
    if is_under_rank0(module, node) or _is_behind_leaving(module, node):
        return True
    function = module.function(node)
    if function is None or not depth:
        return False
    decorators = (one.func if isinstance(one, ast.Call) else one for one in function.decorator_list)
    if any(_RANK0_ONLY.fullmatch(last_name(one)) for one in decorators):
        return True
    calls = project.links.calls_of(module, function)
    programs = [(home, call) for home, call in calls if home is module or not is_test_path(home.path)]
    return any(_is_of_one_rank(project, home, call, depth - 1) for home, call in programs)


def _is_behind_leaving(module: Module, node: ast.AST) -> bool:
    """Whether ranks other than the first have left the function before: `if rank != 0: return`."""
    gates = branches_before(module, node)
    return any(leaves(gate.body) and _is_other_rank(gate.test) for gate in gates)


def _is_other_rank(test: ast.expr) -> bool:
    """`rank != 0`, `rank > 0`, `not is_main_process()`."""
    match test:
        case ast.Compare(left=left, ops=[ast.NotEq() | ast.Gt()], comparators=[ast.Constant(value=0)]):
            return ast.unparse(left).lower().endswith(("rank", "rank()"))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            words = ast.unparse(operand).lower()
            return any(word in words for word in ("is_main", "is_rank0", "is_rank_zero", "is_master"))
    return False
