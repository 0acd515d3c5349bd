"""State dict calls of sharded models: which of them are for a rule to see to, and which it has to leave.

What `model.state_dict()` and `model.load_state_dict(state)` have in common.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from codemods.analysis.holding import Maybe, No, Sharded
from codemods.analysis.module import Module
from codemods.analysis.own_state_dicts import own_state_dict
from codemods.analysis.state_dict_choices import Answer, in_force, serves_both_stacks
from codemods.analysis.state_dicts import Unknown, enclosing
from codemods.analysis.summoned import is_model_summoned, only_loads, summoning
from codemods.editing.state_dicts import Refused
from codemods.editing.statements import (
    homes_of,
    is_by_library,
    is_unwrapped,
    is_where_not_instance,
    is_where_other_branch_shards,
    may_be_ddp,
)
from codemods.project import MethodCall, Project


@dataclass(frozen=True, slots=True)
class StateDictCall:
    """A call on a model that can be sharded there.

    Attributes:
        told: what kind of state dict is in force.
        is_in_block: a `state_dict_type` block of the model is around it.
    """

    call: MethodCall
    holding: Sharded | Maybe
    told: Answer
    is_in_block: bool


def state_dict_calls(project: Project, name: str) -> Iterator[StateDictCall]:
    """The calls of a method on sharded models, those left out that serve another stack too, or that save
    where parameters are whole."""
    for call in project.method_calls(name):
        module, node, model = call.module, call.node, call.receiver
        holding, text = project.sharded_or_around(module, model), ast.unparse(model)
        if isinstance(holding, No) or is_where_not_instance(module, node, text):
            continue
        if is_where_other_branch_shards(module, node, text):
            continue
        if name == "state_dict" and is_model_summoned(module, node, model):
            continue
        told = in_force(project, module, node, model)
        is_in_block = enclosing(project, module, node, model) is not None
        if is_in_block or not serves_both_stacks(module, node, told):
            yield StateDictCall(call, holding, told, is_in_block)


def left_to_a_person(project: Project, asked: StateDictCall, name: str) -> Refused | None:
    """Why a call cannot become torch's function, whatever it is given; None where it may."""
    module, model, holding = asked.call.module, asked.call.receiver, asked.holding
    if isinstance(asked.told, Unknown):
        return Refused(asked.told.why)
    if name == "load_state_dict" and _is_in_other_use(module, asked.call.node, model):
        return Refused("it stands within `summon_full_params`, and FSDP2 loads outside of it, into shards")
    if own := own_state_dict(project, module, model, holding, name):
        return Refused(own)
    if not isinstance(holding, Maybe):
        return None
    if project.is_any_object(module, model):
        return Refused("optimizers come by here too, and only a model's state dict changes")
    by_library = is_by_library(holding) and not is_unwrapped(module, model)
    ddp_too = any(map(may_be_ddp, homes_of(module, holding))) and not project.is_where_wrapped(module, model)
    if by_library or ddp_too:
        return Refused(
            "the model may be wrapped in DistributedDataParallel too, which names its keys otherwise"
        )
    return None


def _is_in_other_use(module: Module, call: ast.Call, model: ast.expr) -> bool:
    """Whether `summon_full_params` of the model is around a call, and stays: it is for something else too."""
    block = summoning(module, call, model)
    return block is not None and not only_loads(block)
