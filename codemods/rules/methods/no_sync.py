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
    Module,
    No,
    Project,
    Safety,
    code,
    finding,
    insert_before,
    negated,
    remove_with_item,
    replace,
    rule,
    unwrap_block,
)

_NOTHING = ("nullcontext", "suppress")


@rule("no_sync", {"FM303": "`no_sync` of the FSDP1 wrapper"})
def no_sync(project: Project) -> Iterator[Finding]:
    """`model.no_sync()` becomes `model.set_requires_gradient_sync(...)`.

    FSDP2 has a switch instead of a context. Where the context was chosen per micro-batch, the switch is set per
    micro-batch, with the condition turned round:

        with model.no_sync() if (i + 1) % n else nullcontext():      model.set_requires_gradient_sync((i + 1) % n == 0)
            loss = model(batch)                                      loss = model(batch)
            loss.backward()                                          loss.backward()

    This is done where every backward pass of the function stands in that block. Everywhere else (a plain
    `with model.no_sync():`, a context in a variable, an `ExitStack`, the bound method handed on) a context manager
    of five lines is written into the helper module and the place keeps its shape: `with no_sync(model):`.

    With bfloat16 compute and float32 reduction FSDP1 accumulated in bfloat16 between synchronisations and FSDP2
    accumulates in float32: the second is more accurate, and the results then differ.
    """
    for module in list(project.modules.values()):
        for node in module.nodes(ast.Attribute):
            assert isinstance(node, ast.Attribute)
            if node.attr != "no_sync" or isinstance(project.sharded(module, node.value), No):
                continue
            call = module.parent(node)
            if isinstance(call, ast.Call) and call.func is node:
                edits = _chosen_per_batch(module, call, node.value) or [
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


def _as_function(module: Module, call: ast.Call, model: ast.expr) -> Edit:
    return replace(module, call, code(module, "{helper.no_sync}({model})", model=model))


def _chosen_per_batch(module: Module, call: ast.Call, model: ast.expr) -> list[Edit]:
    """The edits for `with model.no_sync() if c else nullcontext():` around all backward passes; else none."""
    choice = module.parent(call)
    item = module.parent(choice) if isinstance(choice, ast.IfExp) else None
    block = module.parent(item) if isinstance(item, ast.withitem) else None
    if not (isinstance(choice, ast.IfExp) and isinstance(item, ast.withitem) and isinstance(block, ast.With)):
        return []
    is_first = choice.body is call
    other = choice.orelse if is_first else choice.body
    if item.optional_vars is not None or not _does_nothing(other) or not _holds_every_backward(module, block):
        return []
    condition = negated(module, choice.test) if is_first else code(module, "{c}", c=choice.test)
    switch: Code = code(module, "{model}.set_requires_gradient_sync({c})", model=model, c=condition)
    if len(block.items) == 1:
        return [unwrap_block(module, block, before=switch)]
    return [insert_before(module, block, switch), remove_with_item(module, block, item)]


def _does_nothing(node: ast.expr) -> bool:
    """`nullcontext()`, `contextlib.nullcontext()`, `suppress()`."""
    if not isinstance(node, ast.Call) or node.args:
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return name in _NOTHING


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
