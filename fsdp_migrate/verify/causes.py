"""Names the likely cause of a difference, by rules on the two records; pure.

Rules are asked in order, from causes that explain everything to those that only say where to look. Every rule
that applies is reported; the first is the likeliest.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from fsdp_migrate.verify import (
    answer_causes,
    backward_causes,
    clipping_causes,
    data_causes,
    gradient_causes,
    norm_causes,
    optimizer_causes,
    precision_causes,
    resumed,
    saved_numbers,
    saving_causes,
    scaler_causes,
    sharding_causes,
    shared_files,
    start_causes,
)
from fsdp_migrate.verify.evidence import Evidence
from fsdp_migrate.verify.model import Cause
from fsdp_migrate.verify.record import ArmRecord
from fsdp_migrate.verify.where_to_look import where_to_look

_SECOND_MODEL = re.compile(r"model\d+\.")

Rule = Callable[[Evidence], Cause | None]


def likely_causes(evidence: Evidence) -> tuple[Cause, ...]:
    """Every cause whose rule applies, the likeliest first."""
    found = tuple(cause for rule in _RULES if (cause := rule(evidence)) is not None)
    return found or tuple(filter(None, (rule(evidence) for rule in _LAST)))


def _foreign_parameters(evidence: Evidence) -> Cause | None:
    held = max((one.foreign for one in evidence.candidate.optimizers), default=0)
    before = max((one.foreign for one in evidence.original.optimizers), default=0)
    if before > held:
        return Cause(
            "wrong-original-optimizer",
            f"the original's optimizer holds {before} parameters that are not in its model, the candidate's "
            f"{held}: it is the original whose steps change nothing, because its optimizer was built before "
            "FSDP1 wrapped the model without use_orig_params=True",
            "the original is no measure here; build its optimizer after the wrap, or set "
            "use_orig_params=True",
        )
    if held <= before:
        return None
    of_others = max(one.of_others for one in evidence.candidate.optimizers)
    if of_others:
        return Cause(
            "optimizer-of-another-model",
            f"the optimizer holds {of_others} parameters of a model that is called without gradients alone "
            "until its step: not those of the model that is trained",
            "give the optimizer the parameters that it has in the original",
        )
    if held < len(evidence.candidate.shapes) and held not in _sizes_of_models(evidence.candidate):
        return Cause(
            "optimizer-holds-gathered",
            f"the optimizer holds {held} parameters that are not in the model, out of "
            f"{len(evidence.candidate.shapes)}: it was built after a forward pass, while the root unit was "
            "gathered, or before fully_shard was called on a part of the model",
            "build the optimizer after the last fully_shard call and before the first forward pass",
        )
    return Cause(
        "optimizer-before-shard",
        f"the optimizer holds {held} parameter{'s' * (held != 1)} that {'are' if held != 1 else 'is'} not "
        "in the model: "
        "it was built before fully_shard, which replaces parameters, so its steps change nothing",
        "build the optimizer after the last fully_shard call",
    )


def _sizes_of_models(arm: ArmRecord) -> set[int]:
    """Numbers of parameters of each of several models; names of all but the first tell theirs."""
    of = Counter(found[0] if (found := _SECOND_MODEL.match(name)) else "" for name in arm.shapes)
    return set(of.values()) if len(of) > 1 else set()


def _parameter_sets(evidence: Evidence) -> Cause | None:
    left, right = set(evidence.original.shapes), set(evidence.candidate.shapes)
    if left == right:
        return None
    untied = [names for names in evidence.original.tied if names not in evidence.candidate.tied]
    if untied:
        return Cause(
            "untied",
            f"{' and '.join(untied[0])} share a weight in the original and are two in the candidate",
            "keep both in one unit: leave them to the root, or shard them together with fully_shard([a, b])",
        )
    lost, new = sorted(left - right), sorted(right - left)
    return Cause(
        "other-parameters",
        f"the models have other parameters: {len(lost)} only in the original ({', '.join(lost[:3])}), "
        f"{len(new)} only in the candidate ({', '.join(new[:3])})",
        "compare how both arms build the model",
    )


def _unused(evidence: Evidence) -> Cause | None:
    unused = sorted(evidence.comparison.unused)
    first = evidence.first
    if not unused or first is None or not (first.name in unused or first.quantity == "weight"):
        return None
    return Cause(
        "unused-parameters",
        f"{len(unused)} parameters take no part in the loss ({', '.join(unused[:3])}): FSDP1 gives them a "
        "zero "
        "gradient, so weight decay and momentum still act on them; FSDP2 gives none",
        "call model.set_reduce_scatter_unused_params(True) (torch 2.13 and later), or freeze them",
    )


def _replicas(evidence: Evidence) -> Cause | None:
    for arm, step, quantity, name, ranks in evidence.comparison.replicas_apart:
        if arm == "original" and not evidence.original.sharded.get(name, True):
            continue  # FSDP1 was told to ignore it: whoever averages its gradient does so later
        if arm == "original":
            return Cause(
                "wrong-original",
                f"in the original itself, replicas of {name} are not equal ({quantity}, step {step}, rank "
                f"{', '.join(map(str, ranks))}): it does not average gradients over them (hybrid sharding "
                "with one rank "
                "per node: pytorch#154888)",
                "the original is no measure here; compare against FULL_SHARD, or against a single process",
            )
        if step == 0 or quantity == "weight of another model":
            return Cause(
                "no-broadcast",
                f"replicas of {name} are not equal in the candidate {'from the start ' * (step == 0)}(rank "
                f"{', '.join(map(str, ranks))}): each rank kept the values it drew itself, so "
                "sync_module_states has no replacement, or the model is no longer sharded",
                "broadcast parameters and buffers from rank 0 before fully_shard, or load with "
                "broadcast_from_rank0=True",
            )
        return Cause(
            "replicas-differ",
            f"replicas of {name} are not equal in the candidate ({quantity}, step {step}, rank "
            f"{', '.join(map(str, ranks))})",
            "check that gradients are all-reduced over the replicate dimension of the mesh"
            if evidence.candidate.sharded.get(name, True)
            else "no unit manages it, so that nothing averages its gradient: call dist.all_reduce on it "
            "after backward() and divide by the number of ranks, as the original does",
        )
    return None


def _unseen(evidence: Evidence) -> Cause | None:
    if evidence.original.shapes and evidence.candidate.shapes:
        return None
    arm = "original" if not evidence.original.shapes else "candidate"
    return Cause(
        "nothing-seen",
        f"no model of the {arm} was seen: none with trainable parameters was called with gradients enabled "
        "before the optimizer stepped",
        "let the job run forward, backward and optimizer.step() of torch's own classes in the main thread",
    )


def _fewer_steps(evidence: Evidence) -> Cause | None:
    before, after = evidence.original.last_step, evidence.candidate.last_step
    if before == after:
        return None
    return Cause(
        "steps",
        f"the original made {before} optimizer steps and the candidate {after} before it ended",
        "compare the conditions of the loop and of skipped steps: a norm that is a DTensor, or one rank's "
        "part of it, decides otherwise",
    )


def _not_converted(evidence: Evidence) -> Cause | None:
    left = sharding_causes.units_of_fsdp1(evidence.candidate)
    if evidence.candidate.kind == "FSDP2" and left:
        return Cause(
            "not-converted",
            f"{len(left)} units of the candidate ({sharding_causes.listed(left)}) are sharded by FSDP1 "
            "still, and others by FSDP2",
            "convert every model of the job",
        )
    if evidence.candidate.kind != "FSDP1" or evidence.original.kind != "FSDP1":
        return None
    return Cause(
        "not-converted",
        "the candidate is sharded by FSDP1 still: two runs of the old program were compared",
        "is this the converted program, and does a branch or an option of it choose FSDP2?",
    )


def _not_fsdp(evidence: Evidence) -> Cause | None:
    if "FSDP" in evidence.original.kind + evidence.candidate.kind or not evidence.original.shapes:
        return None
    return Cause(
        "nothing-sharded",
        f"neither arm is sharded ({evidence.original.kind}): the job did not turn FSDP on, so nothing of it "
        "was compared",
        "start it so that it does: accelerate needs ACCELERATE_USE_FSDP or a plugin and a process group, "
        "other programs an option; --nproc 2 or more",
    )


_LAST: tuple[Rule, ...] = (backward_causes.missing_gradients, where_to_look)
"""Where no other rule applies."""
_RULES: tuple[Rule, ...] = (
    _unseen,
    shared_files.shared_output,
    resumed.not_resumed,
    _not_fsdp,
    _not_converted,
    sharding_causes.not_sharded,
    sharding_causes.ignored_sharded,
    sharding_causes.fewer_ranks,
    _replicas,
    _foreign_parameters,
    scaler_causes.scalers,
    scaler_causes.turns,
    scaler_causes.other_passes,
    answer_causes.calls_gone_before,
    answer_causes.other_dtypes,
    data_causes.inputs,
    _parameter_sets,
    sharding_causes.trainable,
    precision_causes.initial_dtypes,
    start_causes.initial_weights,
    optimizer_causes.loaded_otherwise,
    optimizer_causes.kind,
    optimizer_causes.lacking,
    optimizer_causes.holding_more,
    optimizer_causes.state_of_a_checkpoint,
    optimizer_causes.state_lost,
    optimizer_causes.state_kept,
    optimizer_causes.state_dtypes,
    backward_causes.another_pass,
    gradient_causes.reductions,
    backward_causes.loss_of_each_rank,
    gradient_causes.unsynced_gradients_zeroed,
    gradient_causes.zeroed_less,
    gradient_causes.dropped,
    precision_causes.policies,
    precision_causes.input_casts,
    precision_causes.autocast_cache,
    sharding_causes.evaluation_mode,
    start_causes.buffers,
    sharding_causes.outside_writes,
    answer_causes.mode_before,
    sharding_causes.random_state,
    scaler_causes.clipped_while_scaled,
    clipping_causes.clip_arguments,
    norm_causes.norm_of_part,
    clipping_causes.element_limits,
    clipping_causes.clipping,
    gradient_causes.scale,
    optimizer_causes.settings,
    _unused,
    _fewer_steps,
    answer_causes.answers_differ,
    saving_causes.saved_shards,
    saving_causes.saved_names,
    saving_causes.saved_values,
    saved_numbers.saved_numbers,
    saving_causes.other_models,
    answer_causes.calls_gone,
)
