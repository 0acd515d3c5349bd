"""`model.state_dict()` of a sharded model outside of a `state_dict_type` block.

Source: `torch/distributed/fsdp/_state_dict_utils.py` (the default is FULL_STATE_DICT on every rank).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.analysis.state_dict_choices import InForce
from codemods.analysis.summoned import is_model_summoned
from codemods.bare_state_dicts import left_to_a_person, state_dict_calls
from codemods.editing.state_dicts import Edits
from codemods.rule import (
    Finding,
    Maybe,
    No,
    Project,
    Refused,
    Safety,
    Setting,
    finding,
    is_where_not_instance,
    is_where_other_branch_shards,
    model_saved,
    rule,
    state_dict_block_around,
)

_REMEDY = (
    "use `get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))` for whole tensors or "
    "`get_model_state_dict(model)` for shards, from `torch.distributed.checkpoint.state_dict`"
)
_REMEDY_WITHIN = (
    "give it `state_dict=get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, "
    "cpu_offload=True))`, called on every rank, or save and load that dict by yourself"
)


@rule("state_dict", {"FM402": "`state_dict()` of a sharded model"})
def state_dict(project: Project) -> Iterator[Finding]:
    """A bare `model.state_dict()` becomes `get_model_state_dict(...)`.

    FSDP1's default was the full state dict on every rank. FSDP2's `state_dict()` gives this rank's shards
    under the global shape, so that the old `if rank == 0: torch.save(model.state_dict(), f)` would write a
    file that looks whole and holds one shard, without a word.

        state = model.state_dict()
        state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))

    What kind of state dict is meant is looked up: an earlier `FSDP.set_state_dict_type`, a
    `state_dict_type` block around the calls of the function, or the default. Where these disagree or the
    program decides when it runs, `model_state_dict(model)` of the helper module asks what is in force. A
    module that is not sharded itself and has sharded parts (`self.student = FSDP(student)`) is treated alike.
    Within `summon_full_params` parameters are whole, and the model's own functions right, on one rank too.
    The method taken without being called is left to a person, and so are libraries that ask the model for it
    themselves: `model.save_pretrained(path)` without `state_dict=`, `safetensors.torch.save_model(model, f)`.
    """
    yield from _taken(project)
    yield from _asked_within(project)
    for asked in state_dict_calls(project, "state_dict"):
        if asked.is_in_block:
            continue  # the block's own rule sees to it
        call, told = asked.call, asked.told
        edits: Edits | None = left_to_a_person(project, asked, "state_dict")
        setting = told.setting if isinstance(told, InForce) else None
        edits = edits or model_saved(call.module, call.node, setting)
        if isinstance(edits, Refused):
            yield finding(call.module, call.node, "FM402", edits.why, remedy=_REMEDY)
            continue
        yield finding(
            call.module,
            call.node,
            "FM402",
            f"FSDP2's own `state_dict()` gives shards; this one gave {_kind(setting)}",
            safety=Safety.SAFE,
            edits=edits,
        )


def _asked_within(project: Project) -> Iterator[Finding]:
    """Functions of libraries that ask a model for its state dict, or give it one."""
    asked = [
        (call.module, call.node, call.receiver)
        for call in project.method_calls("save_pretrained", "push_to_hub")
        if not any(keyword.arg in ("state_dict", None) for keyword in call.node.keywords)
    ]
    for name in ("save_model", "load_model"):
        for module, node in project.calls_of(f"safetensors.torch.{name}"):
            asked += [(module, node, node.args[0])] if node.args else []
    for module, node, model in asked:
        holding, text = project.sharded(module, model), ast.unparse(model)
        if isinstance(holding, No) or is_where_not_instance(module, node, text):
            continue
        if is_where_other_branch_shards(module, node, text) or is_model_summoned(module, node, model):
            continue
        if state_dict_block_around(project, module, node, model) is not None:
            continue  # the block's own rule sees to it
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
        yield finding(
            module,
            node,
            "FM402",
            f"`{name}` uses the model's own state dict, which is shards under FSDP2",
            remedy=_REMEDY_WITHIN,
            is_note=isinstance(holding, Maybe),
        )


def _kind(setting: Setting | None) -> str:
    return setting.kind.value if setting is not None else "what the program chooses when it runs"


def _taken(project: Project) -> Iterator[Finding]:
    """`save = model.state_dict`: who calls it gets shards."""
    for module in project.looked_at:
        for node in module.attributes("state_dict", "load_state_dict"):
            parent = module.parent(node)
            if not isinstance(node.ctx, ast.Load):
                continue
            if isinstance(parent, ast.Attribute) or (isinstance(parent, ast.Call) and parent.func is node):
                continue
            if not isinstance(project.sharded(module, node.value), No):
                message = f"FSDP2's own `{node.attr}` is about shards, whoever calls it"
                yield finding(module, node, "FM402", message, remedy=_REMEDY)
