"""`FSDP.set_state_dict_type(model, ...)`, `FSDP.get_state_dict_type(model)`.

Source: `FullyShardedDataParallel.set_state_dict_type`, `.get_state_dict_type`.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from codemods.rule import (
    LOCAL,
    OTHER_STACK,
    Finding,
    KindChoice,
    Project,
    Safety,
    argument,
    choices,
    decided_at_run_time,
    delete,
    finding,
    is_for_other_stack,
    rule,
    run_time_choice,
    same_model,
    shared_by_choice,
)
from codemods.shared_types import shared_call

_REMEDY = "delete the call and say at each state dict call what kind it gives (`StateDictOptions`)"


@rule("set_state_dict_type", {"FM406": "a lasting choice of the kind of state dict"})
def set_state_dict_type(project: Project) -> Iterator[Finding]:
    """`FSDP.set_state_dict_type(...)` goes; each later `state_dict()` says what kind it wants.

    The choice was stored in the model and changed the meaning of every later `state_dict()`,
    `load_state_dict()` and `optim_state_dict()` call. Those calls are translated with the chosen kind (see
    FM402 to FM405).

    Where the program decides when it runs, `set_state_dict_type` of the helper module takes its place and
    the calls ask what is in force: a kind from settings, different choices for one model, a choice on some
    paths only, a call whose result (what was in force before) is kept, and `get_state_dict_type`.

    LOCAL_STATE_DICT is left to a person, together with every other lasting choice for the same model; so are
    choices in a branch for FSDP1 models beside one for FSDP2 models, and calls on an object whose class was
    not found (`model.set_state_dict_type(model, ...)`)."""
    run_time = decided_at_run_time(project).calls
    lasting = [choice for choice in choices(project) if choice.lasts]
    local = [choice for choice in lasting if choice.is_local]
    for choice in lasting:
        if is_for_other_stack(project, choice):
            yield _left(choice, OTHER_STACK, "remove it together with what only FSDP1 models need")
        elif choice.is_local:
            yield _left(choice, LOCAL)
        elif any(_may_be_same(project, choice, other) for other in local):
            yield _left(choice, "other calls choose LOCAL_STATE_DICT for the same model, which FSDP2 has not")
        elif choice.call in run_time:
            yield finding(
                choice.module,
                choice.call,
                "FM406",
                f"the helper module's function takes FSDP1's place: {run_time[choice.call]}",
                safety=Safety.SAFE,
                edits=[run_time_choice(choice.module, choice.call)],
                shares=shared_by_choice(project, choice),
            )
        else:
            yield finding(
                choice.module,
                choice.call,
                "FM406",
                "the kind of state dict is said at each call",
                safety=Safety.SAFE,
                edits=[delete(choice.module, choice.module.statement(choice.call))],
            )
    yield from _of_unknown_models(project, {choice.call for choice in choices(project)})
    yield from _asked(project, is_known=bool(run_time))


def _left(choice: KindChoice, why: str, remedy: str = _REMEDY) -> Finding:
    shares = [shared_call(choice.module, choice.call)]
    return finding(choice.module, choice.call, "FM406", why, remedy=remedy, shares=shares)


def _asked(project: Project, *, is_known: bool) -> Iterator[Finding]:
    """`FSDP.get_state_dict_type(model)`; known are choices that the program makes when it runs."""
    for use in project.static_calls("get_state_dict_type"):
        if not is_known:
            yield finding(
                use.module,
                use.node,
                "FM406",
                "an FSDP2 model has no state dict type to ask for, and no call that chooses one was found",
                remedy="keep what your code chose in a variable of its own",
            )
            continue
        yield finding(
            use.module,
            use.node,
            "FM406",
            "the helper module's function takes FSDP1's place: what is in force is asked for at run time",
            safety=Safety.SAFE,
            edits=[run_time_choice(use.module, use.node)],
        )


def _of_unknown_models(project: Project, known: Collection[ast.Call]) -> Iterator[Finding]:
    """`model.set_state_dict_type(model, ...)`, as FSDP1's class is called, where the model was not found."""
    for call in project.method_calls("set_state_dict_type", "state_dict_type"):
        given = argument(call.node, 0, "module")
        is_static = given is not None and ast.unparse(given) == ast.unparse(call.receiver)
        if is_static and call.node not in known and project.resolve(call.module, call.receiver) is None:
            why = "a choice of the kind of state dict for a model whose class was not found"
            yield finding(call.module, call.node, "FM406", why, remedy=_REMEDY)


def _may_be_same(project: Project, choice: KindChoice, other: KindChoice) -> bool:
    """Whether two choices can be for one model; so they are where no wrap of either is known."""
    if choice.model is None or other.model is None:
        return True
    if same_model(project, choice.module, choice.model, other.module, other.model):
        return True
    return not (choice.sites(project) and other.sites(project)) and project.group(
        choice.module.path
    ) == project.group(other.module.path)
