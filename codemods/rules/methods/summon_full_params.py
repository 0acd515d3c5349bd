"""`FSDP.summon_full_params(model, ...)`.

Source: `FullyShardedDataParallel.summon_full_params`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.analysis.entry_methods import computes, entry_methods
from codemods.analysis.summoned import only_loads
from codemods.rule import (
    Edit,
    Finding,
    Module,
    No,
    Project,
    Safety,
    Sharded,
    Span,
    argument,
    code,
    finding,
    remove_with_item,
    replace,
    rule,
    unwrap_block,
)

_KEPT = ("recurse", "writeback", "rank0_only", "offload_to_cpu", "with_grads")


@rule("summon_full_params", {"FM305": "`summon_full_params` of FSDP1"})
def summon_full_params(project: Project) -> Iterator[Finding]:
    """`with FSDP.summon_full_params(model):` becomes a context of the helper module with the same options.

    On an FSDP2 model FSDP1's context does nothing at all, without a word. `model.unshard()` is no
    replacement: it is not recursive, gives values in the compute dtype, and what is written to them is
    lost. The helper puts full parameters in place, writes them back into the shards where `writeback` asks
    for it, and takes the same options. Where the block only runs the model (`generate`, or another method,
    which is registered where the model is sharded, FM311), it goes: FSDP2 needs no full parameters for that.

        with FSDP.summon_full_params(model, writeback=False): ...
        with summon_full_params(model, writeback=False): ...
    """
    registered = {id(site): set[str]() for site in project.wraps}
    for entry in entry_methods(project):
        for site, _ in entry.places:
            registered[id(site)].add(entry.name)
    static = {use.node: use for use in project.static_calls("summon_full_params")}
    for use in project.method_calls("summon_full_params"):
        is_static = use.node in static
        if not is_static and isinstance(project.sharded(use.module, use.receiver), No):
            continue
        model = argument(use.node, 0, "module") or (None if is_static else use.receiver)
        if model is None:
            continue
        item = use.module.parent(_or_nothing(use.module, use.node) or use.node)
        block = use.module.parent(item) if isinstance(item, ast.withitem) else None
        if isinstance(block, ast.With) and len(block.items) == 1 and only_loads(block):
            edits = [unwrap_block(use.module, block)]
            message = "loading needs no full parameters under FSDP2"
        elif (
            isinstance(item, ast.withitem)
            and isinstance(block, ast.With)
            and _only_runs(project, use.module, block, registered)
        ):
            is_alone = len(block.items) == 1
            edits = [
                unwrap_block(use.module, block) if is_alone else remove_with_item(use.module, block, item)
            ]
            message = "running the model needs no full parameters under FSDP2"
        elif (unneeded := _unneeded_context(project, use.module, use.node, registered)) is not None:
            span = _parenthesized(use.module, unneeded)
            edits = [Edit(use.module.path, span, code(None, "{contextlib.nullcontext}()"))]
            message = "running the model needs no full parameters under FSDP2"
        else:
            given = [k for k in use.node.keywords if k.arg in _KEPT]
            new = code(use.module, "{helper.summon_full_params}({model}", model=model)
            for keyword in given:
                new = (*new, *code(use.module, ", {k}", k=keyword))
            edits = [replace(use.module, use.node, (*new, ")"))]
            message = "full parameters are put in place and written back by a context of the helper module"
        yield finding(use.module, use.node, "FM305", message, safety=Safety.SAFE, edits=edits)


def _unneeded_context(
    project: Project, module: Module, call: ast.Call, registered: dict[int, set[str]]
) -> ast.expr | None:
    """What makes a context that is kept in a name for blocks which only generate."""
    statement = module.statement(call)
    if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
        return None
    name, function = statement.targets[0].id, module.function(call) or module.tree
    entered = []
    for block in (n for n in ast.walk(function) if isinstance(n, ast.With)):
        for item in block.items:
            made = item.context_expr.func if isinstance(item.context_expr, ast.Call) else item.context_expr
            if isinstance(made, ast.Name) and made.id == name:
                entered.append(block)
    uses = [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == name and _is_read(n)]
    if (
        not entered
        or len(uses) != len(entered)
        or not all(_only_runs(project, module, block, registered) for block in entered)
    ):
        return None
    return _or_nothing(module, call) or call


def _or_nothing(module: Module, call: ast.Call) -> ast.IfExp | None:
    """`FSDP.summon_full_params(model) if is_fsdp else nullcontext()`, around the first."""
    choice = module.parent(call)
    if isinstance(choice, ast.IfExp):
        other = choice.orelse if choice.body is call else choice.body
        if "nullcontext" in ast.unparse(other):
            return choice
    return None


def _parenthesized(module: Module, node: ast.expr) -> Span:
    """An expression with the parentheses right around it: `lambda: (a if b else c)`."""
    span = module.span(node)
    before, after = module.text[: span.start].rstrip(" "), module.text[span.end :].lstrip(" ")
    if isinstance(module.parent(node), ast.Lambda) and before.endswith("(") and after.startswith(")"):
        return Span(len(before) - 1, len(module.text) - len(after) + 1)
    return span


def _is_read(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Load)


def _only_runs(project: Project, module: Module, block: ast.With, registered: dict[int, set[str]]) -> bool:
    """Whether a block only runs the model, by methods that gather parameters: `generate`, registered ones."""
    calls = [node for statement in block.body for node in ast.walk(statement) if isinstance(node, ast.Call)]
    reads = {"parameters", "named_parameters", "state_dict", "save_pretrained", "weight", "copy_"}
    words = {n.attr for statement in block.body for n in ast.walk(statement) if isinstance(n, ast.Attribute)}
    if reads & words:
        return False
    runs = False
    for call in calls:
        if not isinstance(call.func, ast.Attribute):
            continue
        name = call.func.attr
        holding = project.sharded(module, call.func.value)
        sites = holding.sites if isinstance(holding, Sharded) else frozenset()
        needing = [site for site in sites if computes(project.links, site, name)]
        if any(name not in registered[id(site)] for site in needing):
            return False
        runs = runs or bool(needing) or name == "generate"
    return runs
