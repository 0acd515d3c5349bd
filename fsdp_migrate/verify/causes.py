"""Names the likely cause of a difference, by rules on the two records; pure.

Rules are asked in order, from causes that explain everything to those that only say where to look. Every rule that
applies is reported; the first is the likeliest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fsdp_migrate.verify.compare import CLIPPED, Comparison
from fsdp_migrate.verify.model import Cause, Difference
from fsdp_migrate.verify.noise import clipped
from fsdp_migrate.verify.record import ArmRecord, Part, assemble, widen

_SAME_FACTOR = 1e-4


@dataclass(frozen=True, slots=True)
class Evidence:
    """What rules may look at."""

    original: ArmRecord
    candidate: ArmRecord
    comparison: Comparison

    @property
    def first(self) -> Difference | None:
        """The first difference beyond its limit."""
        return next((one for one in self.comparison.differences if one.fails), None)

    def fails(self, step: int, *quantities: str) -> bool:
        """Whether one of these quantities differs at `step` beyond its limit."""
        return any(one.fails and one.step == step and one.quantity in quantities for one in self.comparison.differences)


Rule = Callable[[Evidence], Cause | None]


def likely_causes(evidence: Evidence) -> tuple[Cause, ...]:
    """Every cause whose rule applies, the likeliest first."""
    return tuple(cause for rule in _RULES if (cause := rule(evidence)) is not None)


def _foreign_parameters(evidence: Evidence) -> Cause | None:
    held = max((one.foreign for one in evidence.candidate.optimizers), default=0)
    before = max((one.foreign for one in evidence.original.optimizers), default=0)
    if held <= before:
        return None
    return Cause(
        "optimizer-before-shard",
        f"the optimizer holds {held} parameter{'s' * (held != 1)} that {'are' if held != 1 else 'is'} not in the model: "
        "it was built before fully_shard, which replaces parameters, so its steps change nothing",
        "build the optimizer after the last fully_shard call",
    )


def _inputs(evidence: Evidence) -> Cause | None:
    for step in sorted(set(evidence.original.steps) & set(evidence.candidate.steps)):
        pairs = zip(evidence.original.steps[step], evidence.candidate.steps[step], strict=False)
        ranks = [rank for rank, (left, right) in enumerate(pairs) if left.inputs != right.inputs]
        if ranks:
            return Cause(
                "different-data",
                f"the model was given other inputs in step {step} (rank {', '.join(map(str, ranks))}): the arms read "
                "different data, so nothing can be said of the numbers after it",
                "seed the data order in the script itself, and keep the order in which it draws random numbers",
            )
    return None


def _initial_weights(evidence: Evidence) -> Cause | None:
    changed = [one for one in evidence.comparison.differences if one.step == 0 and one.quantity == "weight"]
    if not changed:
        return None
    wrong = _ranks_that_differ(evidence, changed)
    if wrong and 0 not in wrong:
        return Cause(
            "no-broadcast",
            f"{len(changed)} initial weights differ, and only in what rank {', '.join(map(str, sorted(wrong)))} holds; "
            "rank 0's part is equal: each rank kept the values it drew itself, so sync_module_states has no "
            "replacement",
            "broadcast parameters and buffers from rank 0 before fully_shard, or load with broadcast_from_rank0=True",
        )
    return Cause(
        "initial-weights",
        f"{len(changed)} initial weights differ, on rank 0 too: the arms draw or load other values",
        "initialise before fully_shard in the order the original does, or start both from the same checkpoint",
    )


def _ranks_that_differ(evidence: Evidence, changed: list[Difference]) -> set[int]:
    """Ranks whose part of the candidate's initial weights is not what the original has at that place."""
    found: set[int] = set()
    for one in changed:
        whole = assemble(evidence.original.tensors(0, "weight")[one.name])
        for part in evidence.candidate.tensors(0, "weight")[one.name]:
            if whole.stored is None or part.stored is None or part.start is None:
                return set()
            expected = widen(whole.stored[part.start : part.start + part.numel], whole.dtype)
            if not np.array_equal(expected, part.values()):
                found.add(part.rank)
    return found


def reduced_passes(arm: ArmRecord) -> float:
    """Backward passes per optimizer step in which gradients were reduced; the median over steps, on rank 0."""
    counts = sorted(sum(1 for one in facts[0].reductions if one) for facts in arm.steps.values() if facts)
    return counts[len(counts) // 2] if counts else 0


def _reductions(evidence: Evidence) -> Cause | None:
    before, after = reduced_passes(evidence.original), reduced_passes(evidence.candidate)
    if before == after:
        return None
    if after > before:
        return Cause(
            "no-sync-dropped",
            f"gradients were reduced {after} times per step in the candidate and {_times(before)} in the original: "
            "the no_sync translation is missing",
            "call model.set_requires_gradient_sync(is_last_micro_batch) before each backward pass",
        )
    return Cause(
        "sync-missing",
        f"gradients were reduced {_times(after)} per step in the candidate and {_times(before)} in the original: "
        "synchronisation stays off for too long",
        "call model.set_requires_gradient_sync(True) before the last backward pass of each step",
    )


def _times(count: float) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(int(count), f"{count} times")


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


def _input_casts(evidence: Evidence) -> Cause | None:
    first = evidence.first
    if first is None or first.quantity not in ("loss", "gradient"):
        return None
    for name, before in evidence.original.input_dtypes.items():
        after = evidence.candidate.input_dtypes.get(name, before)
        if before != after:
            where = f"of {name}" if name else "of the root"
            return Cause(
                "input-cast",
                f"block inputs {where} were {_dtypes(after)} in the candidate and {_dtypes(before)} in the original: "
                "cast_forward_inputs",
                "FSDP1 casts inputs at the root alone: give every unit but the root "
                "MixedPrecisionPolicy(..., cast_forward_inputs=False)",
            )
    return None


def _dtypes(names: tuple[str, ...]) -> str:
    return " and ".join(names) or "no floating-point tensors"


def _precision(evidence: Evidence) -> Cause | None:
    if evidence.first is None:
        return None
    before = {unit.name: unit for unit in evidence.original.units}
    for unit in evidence.candidate.units:
        known = before.get(unit.name)
        if known is None:
            continue
        for field in ("param_dtype", "reduce_dtype"):
            left, right = getattr(known, field), getattr(unit, field)
            if left != right:
                return Cause(
                    "precision",
                    f"unit {unit.name or '(root)'}: {field} is {right or 'not set'} in the candidate and "
                    f"{left or 'not set'} in the original",
                    "give MixedPrecisionPolicy both param_dtype and reduce_dtype, on every fully_shard call",
                )
    return None


def _clipping(evidence: Evidence) -> Cause | None:
    original, candidate = evidence.original, evidence.candidate
    if not clipped(original) or evidence.first is None:
        return None
    for step in range(1, candidate.last_step + 1):
        for norms in candidate.clipped_norms(step):
            if max(norms) - min(norms) > _SAME_FACTOR * max(norms) and _equal_norms(original, step):
                return _local_norms(", ".join(f"{norm:.4g}" for norm in norms), step, "norm")
        factors = clip_factors(candidate, step)
        if len(factors) > 1 and max(factors.values()) - min(factors.values()) > _SAME_FACTOR:
            return _local_norms(", ".join(f"{factor:.4g}" for factor in factors.values()), step, "factor")
        if factors and all(abs(one - 1) < 1e-9 for one in factors.values()) and _is_scaled(original, step):
            return Cause(
                "not-clipped",
                f"the original clipped the gradients of step {step} and the candidate did not",
                "call torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm) before optimizer.step()",
            )
    return None


def _local_norms(numbers: str, step: int, what: str) -> Cause:
    return Cause(
        "local-norm",
        f"clipping used a local norm: in step {step} its {what} differs by rank ({numbers}), so every rank scaled "
        "its part of the gradients in another way",
        "use torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm), which reduces over DTensors, and "
        ".full_tensor() of what it returns",
    )


def _equal_norms(arm: ArmRecord, step: int) -> bool:
    return all(max(norms) - min(norms) <= _SAME_FACTOR * max(norms) for norms in arm.clipped_norms(step))


def _is_scaled(arm: ArmRecord, step: int) -> bool:
    return any(abs(one - 1) > 1e-6 for one in clip_factors(arm, step).values())


def clip_factors(arm: ArmRecord, step: int) -> dict[int, float]:
    """By which factor each rank scaled its gradients between the last backward pass and the optimizer's step."""
    sums: dict[int, list[float]] = {}
    before, after = arm.tensors(step, "gradient"), arm.tensors(step, CLIPPED)
    for name, parts in before.items():
        scaled = {(part.rank, part.place): part for part in after.get(name, [])}
        for part in parts:
            other = scaled.get((part.rank, part.place))
            if other is None or part.stored is None or other.stored is None:
                continue
            values = part.values()
            total = sums.setdefault(part.rank, [0.0, 0.0])
            total[0] += float(values @ other.values())
            total[1] += float(values @ values)
    return {rank: top / bottom for rank, (top, bottom) in sorted(sums.items()) if bottom and math.isfinite(bottom)}


def _gradient_scale(evidence: Evidence) -> Cause | None:
    first = evidence.first
    if first is None or first.quantity != "gradient":
        return None
    factors = []
    for name, parts in evidence.original.tensors(first.step, "gradient").items():
        other = evidence.candidate.tensors(first.step, "gradient").get(name)
        factor = _ratio(parts, other) if other else None
        if factor is not None:
            factors.append(factor)
    if not factors or max(factors) - min(factors) > 1e-3 * abs(factors[0]) or abs(factors[0] - 1) < 1e-2:
        return None
    return Cause(
        "gradient-scale",
        f"all gradients of step {first.step} are {factors[0]:.4g} times the original's: they are averaged over another "
        f"number (ranks: {evidence.original.ranks})",
        "check set_gradient_divide_factor, the division of the loss by the number of micro-batches, and the mesh",
    )


def _ratio(left: list[Part], right: list[Part]) -> float | None:
    a, b = assemble(left), assemble(right)
    if a.stored is None or b.stored is None or a.shape != b.shape:
        return None
    x, y = widen(a.stored, a.dtype), widen(b.stored, b.dtype)
    square = float(x @ x)
    if not square:
        return None
    factor = float(x @ y) / square
    return factor if float(np.linalg.norm(y - factor * x)) <= 1e-3 * float(np.linalg.norm(y)) else None


def _optimizer_settings(evidence: Evidence) -> Cause | None:
    for left, right in zip(evidence.original.optimizers, evidence.candidate.optimizers, strict=False):
        for name in sorted(set(left.settings) & set(right.settings)):
            before, after = dict(left.settings[name]), dict(right.settings[name])
            for key in sorted(set(before) & set(after)):
                if before[key] != after[key] and right.foreign == 0:
                    return Cause(
                        "optimizer-settings",
                        f"{name} has {key}={after[key]} in the candidate's optimizer and {before[key]} in the "
                        f"original's (step {left.step})",
                        "parameters are full-shape DTensors now: groups chosen by p.ndim or p.numel() change; choose "
                        "them on the model before it is sharded, or by name",
                    )
    return None


def _unused(evidence: Evidence) -> Cause | None:
    unused = sorted(evidence.comparison.unused)
    first = evidence.first
    if not unused or first is None or not (first.name in unused or first.quantity == "weight"):
        return None
    return Cause(
        "unused-parameters",
        f"{len(unused)} parameters take no part in the loss ({', '.join(unused[:3])}): FSDP1 gives them a zero "
        "gradient, so weight decay and momentum still act on them; FSDP2 gives none",
        "call model.set_reduce_scatter_unused_params(True) (torch 2.13 and later), or freeze them",
    )


def _buffers(evidence: Evidence) -> Cause | None:
    first = evidence.first
    differing = [one for one in evidence.comparison.differences if one.quantity == "buffer" and one.step == 0 and one.fails]
    if not differing or first is None:
        return None
    return Cause(
        "buffers",
        f"{len(differing)} buffers differ before the first backward pass ({differing[0].name}): FSDP1 casts buffers to "
        "buffer_dtype, FSDP2 leaves them",
        "cast floating-point buffers after fully_shard, or recompute those that were initialised on the meta device",
    )


def _replicas(evidence: Evidence) -> Cause | None:
    for arm, step, quantity, name, ranks in evidence.comparison.replicas_differ:
        if arm == "original":
            return Cause(
                "wrong-original",
                f"in the original itself, replicas of {name} are not equal ({quantity}, step {step}, rank "
                f"{', '.join(map(str, ranks))}): it does not average gradients over them (hybrid sharding with one rank "
                "per node: pytorch#154888)",
                "the original is no measure here; compare against FULL_SHARD, or against a single process",
            )
        return Cause(
            "replicas-differ",
            f"replicas of {name} are not equal in the candidate ({quantity}, step {step}, rank "
            f"{', '.join(map(str, ranks))})",
            "check that gradients are all-reduced over the replicate dimension of the mesh",
        )
    return None


def _place(evidence: Evidence) -> Cause | None:
    """Where to look, when no rule knows why."""
    first = evidence.first
    if first is None:
        return None
    step, what = first.step, first.quantity
    words = {
        "loss": (
            f"the loss of step {step} differs though weights before it and inputs are equal: the forward pass differs",
            "look at dropout and other random numbers, autocast (its weight cache must not outlive a step), dtypes of "
            "inputs and buffers, and evaluation between backward() and optimizer.step()",
        ),
        "gradient": (
            f"the gradients of step {step} differ though its loss is equal",
            "look at gradient accumulation, zero_grad() while synchronisation is off (FSDP2 keeps such gradients), "
            "reduce_dtype, and the number the loss is divided by",
        ),
        CLIPPED: (
            f"the gradients of step {step} are equal after backward() and differ when the optimizer gets them",
            "look at clipping, unscaling, and anything else that changes gradients in between",
        ),
        "weight": (
            f"the weights differ after step {step} though its gradients are equal",
            "look at the optimizer: its parameter groups, its state, its settings",
        ),
    }.get(what)
    return None if words is None else Cause("where-to-look", *words)


_RULES: tuple[Rule, ...] = (
    _replicas,
    _foreign_parameters,
    _inputs,
    _parameter_sets,
    _initial_weights,
    _reductions,
    _input_casts,
    _precision,
    _buffers,
    _clipping,
    _gradient_scale,
    _optimizer_settings,
    _unused,
    _place,
)
