"""Methods of FSDP1's wrapper that are asked for by name, or taken without being called."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.rule import (
    Finding,
    Maybe,
    Module,
    No,
    Project,
    Safety,
    can_only_be_sharded,
    code,
    finding,
    may_be_ddp,
    replace,
    rule,
)

_METHODS = ("clip_grad_norm_", "no_sync", "summon_full_params")
"""Only the wrapper has these; DistributedDataParallel has `no_sync` too."""
_NEW = (
    *("set_requires_gradient_sync", "set_is_last_backward", "set_requires_all_reduce", "unshard", "reshard"),
    *("set_reshard_after_backward", "set_modules_to_forward_prefetch", "set_modules_to_backward_prefetch"),
)
"""Only FSDP2's models have these."""
_REMEDIES = {
    "clip_grad_norm_": "call `torch.nn.utils.clip_grad_norm_(model.parameters(), c)` where it is used",
    "no_sync": "call `model.set_requires_gradient_sync(is_last)` before each micro-batch instead",
    "summon_full_params": "use `parameter.full_tensor()` for whole values",
}


@rule("hasattr", {"FM531": "a method of FSDP1's wrapper is asked for, or taken without being called"})
def asked_for(project: Project) -> Iterator[Finding]:
    """`hasattr(model, "clip_grad_norm_")` becomes `isinstance(model, FSDPModule)`.

    The methods are gone with FSDP1's wrapper: the old question is False on an FSDP2 model, without a word,
    and the program goes another way. Where the model may be wrapped in DistributedDataParallel, which has
    `no_sync` too, or where it comes from was not found, the old question stays beside the new one.

    A method that is handed on (`clip = model.clip_grad_norm_`, `getattr(model, "no_sync")`) is left to a
    person, where what is done with it cannot be followed. `getattr(model, "no_sync", default)` that is
    entered together with `torch.no_grad()` needs nothing: the default does what `no_sync` did there.

    A question for what only FSDP2's models have, `hasattr(model, "set_requires_gradient_sync")`, is answered
    otherwise from now on, and that is said.
    """
    for module in project.looked_at:
        for call in module.calls():
            asked = _asked(call, (*_METHODS, *_NEW))
            if asked is None or not _can_be_sharded(project, module, call.args[0], asked):
                continue
            if asked in _NEW:
                yield from _answered(module, call, asked)
            elif ast.unparse(call.func) == "hasattr":
                yield _question(project, module, call, asked)
            elif asked == "no_sync" and len(call.args) == 3 and _is_without_gradients(module, call):
                yield finding(
                    module,
                    call,
                    "FM531",
                    "an FSDP2 model has no `no_sync`: the default is taken, the same without gradients",
                    is_note=True,
                )
            else:
                yield _taken(module, call, asked)
        for node in module.attributes(*_METHODS):
            if not isinstance(node.ctx, ast.Load):
                continue
            parent = module.parent(node)
            if isinstance(parent, ast.Attribute) or (isinstance(parent, ast.Call) and parent.func is node):
                continue
            if _can_be_sharded(project, module, node.value, node.attr):
                yield _taken(module, node, node.attr)


def _can_be_sharded(project: Project, module: Module, model: ast.expr, method: str) -> bool:
    """Whether it is a sharded model, or an object of unknown origin that is asked for what FSDP1's had; not
    where it is asked beside that whether it is FSDP2's."""
    if not isinstance(project.sharded(module, model), No):
        return True
    if method in _NEW or not can_only_be_sharded(project, module, model, method):
        return False
    beside = next((p for p in module.ancestors(model) if isinstance(p, ast.BoolOp)), None)
    return beside is None or "FSDPModule" not in ast.unparse(beside)


def _answered(module: Module, call: ast.Call, method: str) -> Iterator[Finding]:
    """What `hasattr(model, "set_requires_gradient_sync")` leads to, where no FSDP1 model came."""
    yield finding(
        module,
        call,
        "FM531",
        f"an FSDP2 model has `{method}`, which FSDP1's had not: what is done where it is there is done now",
        is_note=True,
    )


def _is_without_gradients(module: Module, call: ast.Call) -> bool:
    """Whether a context that is kept in a name is only entered where no gradients are made."""
    statement, function = module.statement(call), module.function(call)
    if not (isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)):
        return False
    if function is None or statement.value is not call:
        return False
    name = statement.targets[0].id
    uses = [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == name]
    reads = [n for n in uses if isinstance(n.ctx, ast.Load)]
    return bool(reads) and all(_stops_gradients(module, read) for read in reads)


def _stops_gradients(module: Module, read: ast.Name) -> bool:
    """Whether a context is entered in a `with` that stops gradients too, or within one."""
    blocks = [block for block in module.ancestors(read) if isinstance(block, ast.With)]
    entered = bool(blocks) and any(read in ast.walk(item.context_expr) for item in blocks[0].items)
    texts = [ast.unparse(item.context_expr) for block in blocks for item in block.items]
    return entered and any(text.endswith(("no_grad()", "inference_mode()")) for text in texts)


def _asked(call: ast.Call, methods: tuple[str, ...]) -> str | None:
    """The method that `hasattr` or `getattr` asks for."""
    if not isinstance(call.func, ast.Name) or call.func.id not in ("hasattr", "getattr"):
        return None
    name = call.args[1] if len(call.args) > 1 else None
    told = name.value if isinstance(name, ast.Constant) else None
    return told if isinstance(told, str) and told in methods else None


def _question(project: Project, module: Module, call: ast.Call, method: str) -> Finding:
    template = "isinstance({x}, {torch.distributed.fsdp.FSDPModule})"
    holding = project.sharded(module, call.args[0])
    others = method == "no_sync" and (may_be_ddp(module) or isinstance(holding, Maybe))
    if others or isinstance(holding, No):
        is_test = getattr(module.parent(call), "test", None) is call
        template = f'{template} or hasattr({{x}}, "{method}")'
        template = template if is_test else f"({template})"
    return finding(
        module,
        call,
        "FM531",
        f"a sharded model has no `{method}`, and is an `FSDPModule`",
        safety=Safety.SAFE,
        edits=[replace(module, call, code(module, template, x=call.args[0]))],
    )


def _taken(module: Module, node: ast.expr, method: str) -> Finding:
    return finding(
        module,
        node,
        "FM531",
        f"`{method}` does not exist on an FSDP2 model, whoever calls it",
        remedy=_REMEDIES[method],
        fades=True,
    )
