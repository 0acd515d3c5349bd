"""`model.no_sync()`.

Source: `FullyShardedDataParallel.no_sync`, `FSDPModule.set_requires_gradient_sync`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.rule import (
    Code,
    Edit,
    Finding,
    Maybe,
    Module,
    No,
    Project,
    Safety,
    can_only_be_sharded,
    code,
    finding,
    insert_before,
    is_by_library,
    may_be_ddp,
    negated,
    remove_with_item,
    replace,
    rule,
    unwrap_block,
)

_NOTHING = ("contextlib.nullcontext", "contextlib.suppress")


@rule("no_sync", {"FM303": "`no_sync` of the FSDP1 wrapper"}, where={b".no_sync": b""})
def no_sync(project: Project) -> Iterator[Finding]:
    """`model.no_sync()` becomes `model.set_requires_gradient_sync(...)`.

    FSDP2 has a switch instead of a context. Where the context was chosen per micro-batch, the switch is set
    per micro-batch, with the condition turned round:

        with model.no_sync() if (i + 1) % n else nullcontext():
            loss = model(batch)
            loss.backward()

        model.set_requires_gradient_sync((i + 1) % n == 0)
        loss = model(batch)
        loss.backward()

    This is done where every backward pass of the function stands in that block. Everywhere else (a plain
    `with model.no_sync():`, a context in a variable, an `ExitStack`, the bound method handed on) a context
    manager of five lines is written into the helper module and the place keeps its shape:
    `with no_sync(model):`. A model that can be wrapped in DistributedDataParallel as well, or whose
    origin was not found, is asked what it is.

    With bfloat16 compute and float32 reduction FSDP1 accumulated in bfloat16 between synchronisations and
    FSDP2 accumulates in float32: the second is more accurate, and the results then differ."""
    for module in project.looked_at:
        for node in module.attributes("no_sync"):
            holding = project.sharded(module, node.value)
            if isinstance(holding, No):
                if can_only_be_sharded(project, module, node.value, "no_sync"):
                    yield _either(module, node)
                continue
            call = module.parent(node)
            homes = [module, *(site.module for site in holding.sites)]
            if is_by_library(holding) or (isinstance(holding, Maybe) and any(map(may_be_ddp, homes))):
                yield _either(module, node)
                continue
            if isinstance(call, ast.Call) and call.func is node:
                edits = _chosen_per_batch(project, module, call, node.value) or [
                    _as_function(module, call, node.value)
                ]
            else:
                new = code(module, "{functools.partial}({helper.no_sync}, {model})", model=node.value)
                edits = [replace(module, node, new)]
            yield finding(
                module,
                node,
                "FM303",
                "gradient synchronisation is a switch of the sharded model",
                safety=Safety.SAFE,
                edits=edits,
            )


def _either(module: Module, node: ast.Attribute) -> Finding:
    """Of a model that is sharded or wrapped in DistributedDataParallel, which keeps its `no_sync`."""
    call = module.parent(node)
    if isinstance(call, ast.Call) and call.func is node:
        place: ast.expr = call
        new = code(module, "{helper.no_sync_of_either}({model})", model=node.value)
    else:
        place = node
        new = code(module, "{functools.partial}({helper.no_sync_of_either}, {model})", model=node.value)
    return finding(
        module,
        node,
        "FM303",
        "gradient synchronisation is a switch of a sharded model, a context of DistributedDataParallel",
        safety=Safety.SAFE,
        edits=[replace(module, place, new)],
    )


def _as_function(module: Module, call: ast.Call, model: ast.expr) -> Edit:
    return replace(module, call, code(module, "{helper.no_sync}({model})", model=model))


def _chosen_per_batch(project: Project, module: Module, call: ast.Call, model: ast.expr) -> list[Edit]:
    """The edits for `with model.no_sync() if c else nullcontext():` around all backward passes; else none."""
    choice = module.parent(call)
    item = module.parent(choice) if isinstance(choice, ast.IfExp) else None
    block = module.parent(item) if isinstance(item, ast.withitem) else None
    if not (isinstance(choice, ast.IfExp) and isinstance(item, ast.withitem) and isinstance(block, ast.With)):
        return []
    is_first = choice.body is call
    other = choice.orelse if is_first else choice.body
    if (
        item.optional_vars is not None
        or not _does_nothing(project, module, other)
        or not _holds_every_backward(module, block)
    ):
        return []
    condition = negated(module, choice.test) if is_first else code(module, "{c}", c=choice.test)
    switch: Code = code(module, "{model}.set_requires_gradient_sync({c})", model=model, c=condition)
    if len(block.items) == 1:
        return [unwrap_block(module, block, before=switch)]
    return [insert_before(module, block, switch), remove_with_item(module, block, item)]


def _does_nothing(project: Project, module: Module, node: ast.expr) -> bool:
    """`nullcontext()`, `suppress()`, under whatever name."""
    if not isinstance(node, ast.Call) or node.args:
        return False
    symbol = project.resolve(module, node.func)
    return symbol is not None and symbol.name in _NOTHING


def _holds_every_backward(module: Module, block: ast.With) -> bool:
    function = module.function(block) or module.tree
    inside = {node for statement in block.body for node in ast.walk(statement)}
    backwards = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "backward"
    ]
    return bool(backwards) and all(node in inside for node in backwards)
