"""Compares the records of two arms, number by number; pure.

The order of a step's quantities is the order they come about in, so that the first difference is where to
look: what went in, the loss, the gradient, its norm, the clipped gradient, the weight, the optimizer's state.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from fsdp_migrate.verify import world_sizes
from fsdp_migrate.verify.answer_calls import asked_alike
from fsdp_migrate.verify.distance import difference, ratio
from fsdp_migrate.verify.model import ANSWER, CLIPPED, SAVED, Difference
from fsdp_migrate.verify.record import ArmRecord, Part, StepFacts
from fsdp_migrate.verify.whole import Whole, assemble

Limit = Callable[[int, str, str], float]
"""(step, quantity, name) -> allowed relative difference."""


_OF_OTHERS = re.compile(r"other\d+\.")


@dataclass(slots=True)
class Comparison:
    """What was compared and what differs.

    Attributes:
        differences: in the order in which they come about; those within their limit too.
        compared: tensors and numbers compared, by quantity.
        unused: parameters whose gradient is zero in one arm and absent in the other.
        unmatched: (step, quantity, name, the arm that lacks it or how the shapes differ).
        incomplete: tensors whose parts do not cover them.
        replicas_differ: (arm, step, quantity, name, ranks).
    """

    differences: list[Difference] = field(default_factory=list)
    compared: dict[str, int] = field(default_factory=dict)
    unused: set[str] = field(default_factory=set)
    unmatched: list[tuple[int, str, str, str]] = field(default_factory=list)
    incomplete: set[str] = field(default_factory=set)
    replicas_differ: list[tuple[str, int, str, str, tuple[int, ...]]] = field(default_factory=list)

    @property
    def first(self) -> Difference | None:
        """The first difference beyond its limit, else the first at all."""
        return next((one for one in self.differences if one.fails), next(iter(self.differences), None))

    @property
    def bitwise(self) -> bool:
        """Whether nothing differs, not even in the last bit."""
        return not self.differences and not self.unmatched

    @property
    def replicas_apart(self) -> list[tuple[str, int, str, str, tuple[int, ...]]]:
        """Replicas that are not equal in one arm alone.

        What is not equal in both (parameters FSDP was told to ignore are not reduced) is no difference of the
        arms.
        """
        by_arm: dict[str, set[tuple[int, str, str]]] = {"original": set(), "candidate": set()}
        for arm, step, quantity, name, _ in self.replicas_differ:
            by_arm[arm].add((step, quantity, name))
        both = by_arm["original"] & by_arm["candidate"]
        return [one for one in self.replicas_differ if one[1:4] not in both]

    def judged(self, limit: Limit) -> Comparison:
        """The same differences with the limits that `limit` allows."""
        return replace(
            self,
            differences=[
                replace(one, limit=limit(one.step, one.quantity, one.name)) for one in self.differences
            ],
        )


def compare(original: ArmRecord, candidate: ArmRecord) -> Comparison:
    """Compare everything both arms recorded; every limit is 0."""
    result = Comparison()
    _tensors(result, original, candidate, 0, "weight")
    _loaded_states(result, original, candidate)
    _buffers(result, original, candidate, 0)
    _answers(result, original, candidate, 0)
    for step in range(1, min(original.last_step, candidate.last_step) + 1):
        _losses(result, original, candidate, step)
        _tensors(result, original, candidate, step, "gradient")
        _norms(result, original, candidate, step)
        if _got_otherwise(original, candidate, step):
            _tensors(result, original, candidate, step, CLIPPED)
        _tensors(result, original, candidate, step, "weight")
        states = set(original.state_quantities(step)) | set(candidate.state_quantities(step))
        for quantity in sorted(states):
            _tensors(result, original, candidate, step, quantity)
        _tensors(result, original, candidate, step, "weight of another model")
        _answers(result, original, candidate, step)
        _tensors(result, original, candidate, step, SAVED)
        _buffers(result, original, candidate, step)
    return result


def _loaded_states(result: Comparison, original: ArmRecord, candidate: ArmRecord) -> None:
    """What both optimizers had before their first step, which older records do not tell."""
    for quantity in sorted(set(original.state_quantities(0)) & set(candidate.state_quantities(0))):
        left, right = original.tensors(0, quantity), candidate.tensors(0, quantity)
        for name in [name for name in left if name in right]:
            _pair(result, 0, quantity, name, assemble(left[name]), assemble(right[name]))


def _answers(result: Comparison, original: ArmRecord, candidate: ArmRecord, step: int) -> None:
    """Calls that were given the same in both arms; what was sampled may be other tokens."""
    left, right = original.tensors(step, ANSWER), candidate.tensors(step, ANSWER)
    alike = tuple(name for at, name in asked_alike(original, candidate) if at == step)
    for name in [name for name in left if name in right and alike and name.startswith(alike)]:
        _pair(result, step, ANSWER, name, assemble(left[name]), assemble(right[name]))


def _got_otherwise(original: ArmRecord, candidate: ArmRecord, step: int) -> bool:
    """Whether an optimizer got other gradients than those before clipping, and both arms tell."""
    arms = (original, candidate)
    return any((step, CLIPPED) in arm.parts for arm in arms) and all(
        (step, CLIPPED) in arm.parts or step not in arm.sparse for arm in arms
    )


def _tensors(result: Comparison, original: ArmRecord, candidate: ArmRecord, step: int, quantity: str) -> None:
    left, right = original.tensors(step, quantity), candidate.tensors(step, quantity)
    for name in [*left, *(name for name in right if name not in left)]:
        arms = (("original", left), ("candidate", right))
        pair = {arm: assemble(parts[name]) for arm, parts in arms if name in parts}
        for arm, whole in pair.items():
            if whole.replicas_differ:
                result.replicas_differ.append((arm, step, quantity, name, whole.replicas_differ))
        if len(pair) == 2:
            _pair(result, step, quantity, name, pair["original"], pair["candidate"])
            both = pair["original"].replicas_differ and pair["candidate"].replicas_differ
            if both and not world_sizes.differ(original, candidate):
                _rank_by_rank(result, step, quantity, left[name], right[name])
        for arm, lacking in (("original", "candidate"), ("candidate", "original")):
            if lacking not in pair and not _was_not_due(lacking, original, candidate, step, quantity):
                _lonely(result, step, quantity, pair[arm], lacking)


def _was_not_due(lacking: str, original: ArmRecord, candidate: ArmRecord, step: int, quantity: str) -> bool:
    """Whether a state is missing because one arm records states less often: programs differ in that."""
    lacks, has = (original, candidate) if lacking == "original" else (candidate, original)
    return quantity.startswith("optimizer state") and step in lacks.sparse and step not in has.sparse


def _rank_by_rank(result: Comparison, step: int, quantity: str, left: list[Part], right: list[Part]) -> None:
    """Where replicas are unlike in both arms, those that `assemble` passes over are compared too."""
    shown = {part.place: part.rank for part in reversed(left)}
    others = {(part.rank, part.place): part for part in right}
    for part in left:
        other = others.get((part.rank, part.place))
        if other is not None and shown[part.place] != part.rank:
            name = f"{part.name} (rank {part.rank})"
            _note(result, step, quantity, name, _alone(part), _alone(other))


def _lonely(result: Comparison, step: int, quantity: str, whole: Whole, lacking: str) -> None:
    """A tensor that one arm alone has: nothing to worry about where it stands for an unused parameter.

    That is a gradient of zeros, and the state an optimizer makes for it; a gradient in a later step is not.
    """
    if quantity in ("gradient", CLIPPED) and whole.is_zero():
        result.unused.add(whole.name)
    elif whole.name not in result.unused or not quantity.startswith("optimizer state"):
        result.unmatched.append((step, quantity, whole.name, lacking))


def _pair(result: Comparison, step: int, quantity: str, name: str, left: Whole, right: Whole) -> None:
    result.compared[quantity] = result.compared.get(quantity, 0) + 1
    if not (left.complete and right.complete):
        result.incomplete.add(name)
    if left.shape != right.shape:
        result.unmatched.append((step, quantity, name, f"shape {left.shape} and {right.shape}"))
        return
    _note(result, step, quantity, name, left, right)


def _note(result: Comparison, step: int, quantity: str, name: str, left: Whole, right: Whole) -> None:
    found = difference(left, right)
    if found is not None:
        max_abs, relative, a, b, index = found
        result.differences.append(Difference(step, quantity, name, max_abs, relative, 0.0, a, b, index))


def _buffers(result: Comparison, original: ArmRecord, candidate: ArmRecord, step: int) -> None:
    """Buffers belong to a rank each; of other numbers of ranks, those are compared that all ranks share."""
    left, right = original.tensors(step, "buffer"), candidate.tensors(step, "buffer")
    for name in sorted(set(left) & set(right)):
        if world_sizes.differ(original, candidate):
            whole = assemble(left[name]), assemble(right[name])
            if not any(each.replicas_differ for each in whole):
                _pair(result, step, "buffer", name, *whole)
            continue
        by_rank = {part.rank: part for part in right[name]}
        for part in left[name]:
            other = by_rank.get(part.rank)
            if other is not None:
                _pair(result, step, "buffer", f"{name} (rank {part.rank})", _alone(part), _alone(other))
    for name in sorted(set(left) ^ set(right)):
        if _OF_OTHERS.match(name):  # older records have none of models that are called without gradients
            continue
        result.unmatched.append((step, "buffer", name, "candidate" if name in left else "original"))


def _alone(part: Part) -> Whole:
    return assemble([part])


def _losses(result: Comparison, original: ArmRecord, candidate: ArmRecord, step: int) -> None:
    if world_sizes.differ(original, candidate):
        if world_sizes.passes(original) == world_sizes.passes(candidate):
            means = (world_sizes.mean_loss(arm, step) for arm in (original, candidate))
            known = [mean for mean in means if mean is not None]
            if len(known) == 2:
                _number(result, step, "loss", "all ranks", *known)
        return
    for rank, (left, right) in enumerate(_facts(original, candidate, step)):
        losses = _losses_alike(left, right)
        if not all(losses):
            continue
        a, b = (sum(each) / len(each) for each in losses)
        _number(result, step, "loss", f"rank {rank}", a, b)


def _losses_alike(left: StepFacts, right: StepFacts) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Those before scaling where both arms tell them.

    FSDP1's scaler casts the scaled loss to the loss's own dtype, where it overflows, and torch's does not:
    gradients are the same, the scaled losses are not.
    """
    if left.unscaled and right.unscaled:
        return left.unscaled, right.unscaled
    return left.losses, right.losses


def _norms(result: Comparison, original: ArmRecord, candidate: ArmRecord, step: int) -> None:
    for left, right in zip(original.clipped_norms(step), candidate.clipped_norms(step), strict=False):
        if world_sizes.differ(original, candidate):
            left, right = left[:1], right[:1]
        for rank, (a, b) in enumerate(zip(left, right, strict=False)):
            _number(result, step, "gradient norm", f"rank {rank}", a, b)


def _facts(original: ArmRecord, candidate: ArmRecord, step: int) -> Iterator[tuple[StepFacts, StepFacts]]:
    return zip(original.steps.get(step, []), candidate.steps.get(step, []), strict=False)


def _number(result: Comparison, step: int, quantity: str, name: str, a: float, b: float) -> None:
    result.compared[quantity] = result.compared.get(quantity, 0) + 1
    if a == b or (math.isnan(a) and math.isnan(b)):
        return
    apart = abs(a - b)
    result.differences.append(
        Difference(step, quantity, name, apart, ratio(apart, max(abs(a), abs(b))), 0.0, a, b)
    )
