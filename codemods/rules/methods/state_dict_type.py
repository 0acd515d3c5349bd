"""`with FSDP.state_dict_type(model, ...):`.

Source: `FullyShardedDataParallel.state_dict_type`, `torch/distributed/checkpoint/state_dict.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from codemods.rule import (
    LOCAL,
    OTHER_STACK,
    BlockPlan,
    Finding,
    Kind,
    KindChoice,
    Project,
    Refused,
    Safety,
    choices,
    decided_at_run_time,
    finding,
    is_for_other_stack,
    plan_block,
    rule,
    run_time_choice,
    shared_by_choice,
)
from codemods.shared_types import shared_call
from codemods.subclass_calls import is_in_heir

_REMEDY = (
    "save with `get_model_state_dict`/`get_optimizer_state_dict` and load with `set_model_state_dict`/"
    "`set_optimizer_state_dict` of `torch.distributed.checkpoint.state_dict`, then remove the context"
)
_LOCAL = (
    "write a DCP directory: `dcp.save(get_model_state_dict(model), checkpoint_id=...)`; convert old "
    "files with "
    "`fsdp-migrate convert-ckpt`"
)
_HEIR = "this class derives from FSDP1's wrapper, whose methods give the state dicts"
_OTHER_STACK = "remove it together with what only FSDP1 models need"


@rule("state_dict_type", {"FM401": "a context that chooses the kind of state dict"})
def state_dict_type(project: Project) -> Iterator[Finding]:
    """`with FSDP.state_dict_type(...)` goes; each call in it says what kind it wants.

        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT,
                                  FullStateDictConfig(offload_to_cpu=True, rank0_only=True)):
            state = model.state_dict()

        state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))

    With `full_state_dict` and `cpu_offload` rank 0 gets the tensors and the others an empty dict, as with
    `rank0_only=True, offload_to_cpu=True`. SHARDED_STATE_DICT is `get_model_state_dict(model)`: DTensors,
    no communication; directories that FSDP1 wrote load unchanged. The two combinations that
    `StateDictOptions` cannot say (CPU on every rank; rank 0 only without CPU) use a small helper, and so do
    models of a process group that is a part of the ranks, where rank 0 is the group's and not that of all. A
    configuration object bound to a name stays under its name as a `StateDictOptions`.

    Where the program decides when it runs, it goes on deciding: a type or configuration that comes from
    settings, a context that is kept in a variable, returned by a function, chosen by a condition, or entered
    through an `ExitStack` or a `@contextmanager` of the project. The helper module has a `state_dict_type` of
    the same arguments, with FSDP1's configuration types, and each call asks it what is in force:

        with state_dict_type(model, StateDictType[cfg.kind], config):
            state = model_state_dict(model)

    A context in which only an optimizer is asked for its own state goes, whatever it chooses. Left to a
    person, with everything in the block untouched: LOCAL_STATE_DICT (FSDP2 has no flat parameters), blocks
    that hand the model to code that is not part of the project, methods of classes that derive from FSDP1's
    wrapper, and choices that stand in a branch for FSDP1 models beside one for FSDP2 models, which is what
    runs after the rewrite."""
    run_time = decided_at_run_time(project).calls
    for choice in choices(project):
        if choice.lasts:
            continue
        if is_for_other_stack(project, choice):
            yield _left(choice, OTHER_STACK, _OTHER_STACK)
        elif is_in_heir(project, choice.module, choice.call):
            shares = shared_by_choice(project, choice)
            yield finding(choice.module, choice.call, "FM401", _HEIR, remedy=_REMEDY, shares=shares)
        elif choice.block is not None:
            plan = plan_block(project, choice.block)
            if isinstance(plan, Refused):
                yield _left(choice, plan.why, _LOCAL if plan.why == LOCAL else _REMEDY)
            else:
                yield _translated(project, choice, plan)
        elif choice.is_local:
            yield _left(choice, LOCAL, _LOCAL)
        else:
            yield finding(
                choice.module,
                choice.call,
                "FM401",
                f"the helper module's context takes FSDP1's place: {run_time[choice.call]}",
                safety=Safety.SAFE,
                edits=[run_time_choice(choice.module, choice.call)],
                shares=shared_by_choice(project, choice),
            )


def _left(choice: KindChoice, why: str, remedy: str) -> Finding:
    shares = [shared_call(choice.module, choice.call)]
    return finding(choice.module, choice.call, "FM401", why, remedy=remedy, shares=shares)


def _translated(project: Project, choice: KindChoice, plan: BlockPlan) -> Finding:
    message = (
        f"state dicts of this block say themselves what kind they are ({plan.kind})"
        if plan.kind
        else f"state dicts of this block ask the helper module what kind they are: {plan.why}"
    )
    if plan.kind == Kind.LOCAL.value:
        message = "nothing in this block asks a model for its state dict: the context goes"
    return finding(
        choice.module,
        choice.call,
        "FM401",
        message,
        safety=Safety.SAFE,
        edits=plan.edits,
        shares=shared_by_choice(project, choice) if not plan.kind else (),
    )
