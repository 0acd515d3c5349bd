"""`zero_grad()` while gradient synchronisation is off.

Source: `torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py` (unsynchronised gradients are kept on the
unsharded parameters, where `zero_grad` does not see them)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from codemods.analysis.conditions import conditions, decided_by
from codemods.rule import Finding, Module, No, Project, finding, rule

_NAME = re.compile(r"\w+")
_BAD_VALUES = ("isnan", "isinf", "isfinite")


@rule("zero_grad", {"FM304": "`zero_grad()` between micro-batches that are not synchronised"})
def zero_grad(project: Project) -> Iterator[Finding]:
    """`zero_grad()` between unsynchronised micro-batches no longer discards their gradients.

    FSDP1 kept the gradients of `no_sync` micro-batches in `.grad`, where `zero_grad()` drops them. FSDP2
    keeps them aside until the next synchronised backward pass, which adds them in: a batch that was skipped
    because its loss was NaN comes back. Found: `zero_grad()` inside a `no_sync` block, and `zero_grad()`
    under a test for NaN or infinity in a loop that also uses `no_sync`, unless a backward pass outside of any
    context comes right before it, or the branch it is in is that of the micro-batch that synchronises."""
    for module in project.looked_at:
        loops = _accumulating_blocks(project, module)
        for call in module.calls():
            if not (isinstance(call.func, ast.Attribute) and call.func.attr == "zero_grad"):
                continue
            around = [
                parent
                for parent in module.ancestors(call)
                if any(not _is_synchronising(module, call, node) for node in loops.get(parent, ()))
            ]
            in_block = any(isinstance(parent, ast.With) for parent in around)
            in_loop = any(isinstance(parent, ast.For | ast.While) for parent in around)
            if in_block or (
                in_loop and _skips_bad_batch(module, call) and not _is_synchronised(module, call)
            ):
                yield finding(
                    module,
                    call,
                    "FM304",
                    "under FSDP2 `zero_grad()` does not discard the gradients of unsynchronised "
                    "micro-batches: they are "
                    "added to the next synchronised ones",
                    remedy=(
                        "synchronise first: switch synchronisation on, run `(loss * 0).backward()`, "
                        "then `zero_grad()`"
                    ),
                )


def _accumulating_blocks(project: Project, module: Module) -> dict[ast.AST, list[ast.Attribute]]:
    """`with` statements that switch synchronisation off, and the loops around them; and where they say so."""
    found: dict[ast.AST, list[ast.Attribute]] = {}
    for node in module.attributes("no_sync"):
        if isinstance(project.sharded(module, node.value), No):
            continue
        child: ast.AST = node
        for parent in module.ancestors(node):
            if isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef):
                break
            # A `with` around the place where the context is only made is another one.
            if isinstance(parent, ast.For | ast.While) or isinstance(child, ast.withitem):
                found.setdefault(parent, []).append(node)
            child = parent
    return found


def _is_synchronising(module: Module, call: ast.Call, no_sync: ast.Attribute) -> bool:
    """Whether a place behind a backward pass is reached only where `no_sync` is not taken:
    `with nullcontext() if last else m.no_sync(): ...; if last: ...`."""
    start, end = module.span(no_sync).start, module.span(call).start
    between = (n for n in module.called("backward") if start < module.span(n).start < end)
    if not any(between):
        return False
    chosen, met = (
        {
            (ast.unparse(part), is_met)
            for whole in conditions(module, node)
            for part, is_met in decided_by(*whole)
        }
        for node in (no_sync, call)
    )
    bound = {
        n.id
        for n in module.nodes(ast.Name)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        if start < module.span(n).start < end
    }
    return any((text, not is_met) in met and bound.isdisjoint(_NAME.findall(text)) for text, is_met in chosen)


def _skips_bad_batch(module: Module, call: ast.Call) -> bool:
    block = module.block(module.statement(call))
    before = block[: block.index(module.statement(call))]
    if any(".step(" in ast.unparse(statement) for statement in before):
        return False  # an ordinary step, whatever was tested on the way to it
    for parent in module.ancestors(call):
        if isinstance(parent, ast.If) and any(word in ast.unparse(parent.test) for word in _BAD_VALUES):
            return True
        if isinstance(parent, ast.For | ast.While | ast.FunctionDef):
            return False
    return False


def _is_synchronised(module: Module, call: ast.Call) -> bool:
    """Whether a backward pass that no context is around has always run just before."""
    if any(c.func.attr == "enter_context" for c in module.calls() if isinstance(c.func, ast.Attribute)):
        return False
    statement: ast.AST = module.statement(call)
    while isinstance(statement, ast.stmt) and not isinstance(
        statement, ast.For | ast.While | ast.FunctionDef
    ):
        block = module.block(statement)
        for earlier in reversed(block[: block.index(statement)]):
            if any(_is_backward(n) for n in ast.walk(earlier)):
                around = [p for p in module.ancestors(earlier) if isinstance(p, ast.With)]
                is_plain = isinstance(earlier, ast.Expr) and _is_backward(earlier.value)
                return is_plain and all("autocast" in ast.unparse(i) for w in around for i in w.items)
        statement = module.parent(statement) or module.tree
    return False


def _is_backward(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "backward"
    )
