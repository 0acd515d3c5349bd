"""`model.load_state_dict(state)` of a sharded model outside of a `state_dict_type` block.

Source: `torch/distributed/fsdp/_state_dict_utils.py`, `torch/distributed/checkpoint/state_dict.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.analysis.state_dict_choices import Answer, InForce
from codemods.bare_state_dicts import left_to_a_person, state_dict_calls
from codemods.editing.state_dicts import Edits
from codemods.rule import (
    AtRunTime,
    Finding,
    Kind,
    MethodCall,
    Module,
    Project,
    Refused,
    Safety,
    Setting,
    Unknown,
    argument,
    finding,
    model_loaded,
    resharded_before,
    rule,
)

_REMEDY = (
    "use `set_model_state_dict(model, state, options=StateDictOptions(full_state_dict=True))` for "
    "whole tensors or "
    "`set_model_state_dict(model, state)` for shards, from `torch.distributed.checkpoint.state_dict`"
)


@rule("load_state_dict", {"FM403": "`load_state_dict()` of a sharded model"})
def load_state_dict(project: Project) -> Iterator[Finding]:
    """A bare `model.load_state_dict(state)` becomes `set_model_state_dict(...)`.

    FSDP1 took a full state dict on every rank by default. FSDP2's `load_state_dict` wants shards and stops
    with "got mixed torch.Tensor and DTensor".

        model.load_state_dict(state)
        set_model_state_dict(model, state, options=StateDictOptions(full_state_dict=True))

    `set_model_state_dict` puts shards into the dict it is given; where the dict is read again afterwards it
    gets a shallow copy. Where the program evaluates the model, its units are resharded first: after a forward
    pass without a backward pass the root still shows whole, temporary parameters. Loading before the model is
    sharded needs no change and gets none, nor does a dict that the function fills with DTensors.

    Said once per run: a key that a full state dict lacks was an error, or with `strict=False` one of the
    missing keys that it gives back; torch's function keeps the model's own value for it instead, without a
    word (`_load_model_state_dict` puts those into the dict before it is loaded)."""
    lenient: MethodCall | None = None
    for asked in state_dict_calls(project, "load_state_dict"):
        call, told = asked.call, asked.told
        if asked.is_in_block:  # the block's own rule sees to it
            lenient = lenient or (call if _may_be_incomplete(call.module, call.node, told) else None)
            continue
        if _is_distributed(call.module, call.node):
            continue
        edits: Edits | None = left_to_a_person(project, asked, "load_state_dict")
        setting = told.setting if isinstance(told, InForce) else None
        edits = edits or model_loaded(call.module, call.node, setting)
        if isinstance(edits, Refused):
            yield finding(call.module, call.node, "FM403", edits.why, remedy=_REMEDY)
            continue
        lenient = lenient or (call if _may_be_incomplete(call.module, call.node, told) else None)
        if setting is None or setting.kind is not Kind.SHARDED:
            edits = [*resharded_before(project, call.module, call.node, call.receiver), *edits]
        yield finding(
            call.module,
            call.node,
            "FM403",
            f"FSDP2's own `load_state_dict()` takes shards; this one took {_kind(setting)}",
            safety=Safety.SAFE,
            edits=edits,
        )
    if lenient is not None:
        yield finding(
            lenient.module,
            lenient.node,
            "FM403",
            "a key that a full state dict lacks is no error any more, and is not among the missing ones: "
            "torch's `set_model_state_dict` keeps the model's own value for it; unknown keys still are "
            "errors",
            is_note=True,
        )


def _may_be_incomplete(module: Module, call: ast.Call, told: Answer) -> bool:
    """Whether a full state dict is loaded of which every key has to be there, or missing ones are looked
    at."""
    if isinstance(told, AtRunTime | Unknown) or told.setting.kind is not Kind.FULL:
        return False
    strict = argument(call, 1, "strict")
    is_lenient = isinstance(strict, ast.Constant) and not strict.value
    return not is_lenient or not isinstance(module.parent(call), ast.Expr)


def _is_distributed(module: Module, call: ast.Call) -> bool:
    """Whether the state is a dict that the same function fills with DTensors: it is FSDP2's already."""
    state = call.args[0] if call.args else None
    function = module.function(call)
    if function is None or not isinstance(state, ast.Name):
        return False
    fills = [
        n.value
        for n in ast.walk(function)
        if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]).startswith(f"{state.id}[")
    ]
    made = {
        t.id
        for n in ast.walk(function)
        if isinstance(n, ast.Assign) and _makes_dtensor(n.value)
        for t in n.targets
        if isinstance(t, ast.Name)
    }
    return bool(fills) and all(
        _makes_dtensor(value) or (isinstance(value, ast.Name) and value.id in made) for value in fills
    )


def _makes_dtensor(value: ast.expr) -> bool:
    name = ast.unparse(value.func) if isinstance(value, ast.Call) else ""
    return name.rpartition(".")[2] == "distribute_tensor" or name.endswith("DTensor.from_local")


def _kind(setting: Setting | None) -> str:
    return setting.kind.value if setting is not None else "what the program chooses when it runs"
