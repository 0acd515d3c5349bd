"""How much two equal jobs may differ by rounding alone: where rounding enters, and how far it grows; pure.

Equal arithmetic gives equal bits, and that is what is expected first. Where bits differ, each known place at
which the two arms round differently has a size (`rounding_source`). How far a change of that size grows over
the steps is not
guessed: the original is run again with every gradient element changed by it, and the difference that makes is
the noise floor every tensor is judged against (`measured_limits`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from fsdp_migrate.errors import UsageError
from fsdp_migrate.verify import world_sizes
from fsdp_migrate.verify.compare import Comparison, Limit
from fsdp_migrate.verify.record import ArmRecord

_EPS = {"float32": 2.0**-23, "bfloat16": 2.0**-8, "float16": 2.0**-11}
"""Distance from 1 to the next number."""
_FINE = _EPS["float32"]
_COARSE = 1e-5
GROWTH_PER_STEP = 4.0
"""How much rounding is taken to grow with every step where it is not measured."""
MOST_GROWN = 0.5
"""And how far at most: beyond it any two tensors would pass for one another."""
_SCALARS = ("loss", "gradient norm")


@dataclass(frozen=True, slots=True)
class RoundingSource:
    """A place at which both arms are right and round differently.

    Args:
        size: relative size of the difference where it enters.
        reason: one clause, for the report.
        in_gradients: whether it enters with the gradients themselves, not only when they are clipped.
        of_sums: whether gradients were added up in another order, which changes small elements as much as
            others.
        everywhere: whether every operation rounds otherwise, from the first forward pass on.
        compute: dtype the forward pass computes in.
    """

    size: float
    reason: str
    in_gradients: bool = False
    of_sums: bool = False
    everywhere: bool = False
    compute: str = "float32"

    @property
    def factor(self) -> int:
        """How many times the measured noise a difference may reach; less where rounding is coarse already."""
        if self.everywhere:
            return 16 if self.size < _COARSE else 4
        return 16 if self.size < _COARSE and not self.weights else 12 if self.size >= _COARSE else 4

    @property
    def entry(self) -> float:
        """Largest relative difference at the place where rounding enters: beyond it, it is no rounding."""
        return self.size * (32 if self.size < _COARSE else 6)

    @property
    def weights(self) -> float:
        """How much to change weights as well.

        A last-bit change of an fp32 weight changes nothing in a bf16 forward pass until one weight crosses a
        rounding boundary, and then as much as bf16 rounding does. This size makes some of them cross at once.
        """
        if self.compute == "float32":
            return _FINE if self.everywhere else 0.0
        return _EPS[self.compute] / 256


def added_otherwise(source: RoundingSource, comparison: Comparison) -> RoundingSource:
    """The source, where the first gradients differ already and by no more than the order of their sums.

    A tensor that several units take as an input has a gradient of as many terms, and FSDP2 adds them in
    another order than FSDP1.
    """
    differs = any(one.step == 1 and one.quantity == "gradient" for one in comparison.differences)
    if not differs or source.in_gradients:
        return source
    return replace(source, of_sums=True)


def rounding_source(original: ArmRecord, candidate: ArmRecord, *, fixed_order: bool) -> RoundingSource:
    """The coarsest known reason for these two arms to round differently."""
    found = [RoundingSource(_FINE, "fp32 rounding: sums taken in another order")]
    reduce = _coarsest([dtype for arm in (original, candidate) for dtype in _reduce_dtypes(arm)])
    if original.ranks > 2 and not fixed_order and reduce:
        size = _EPS[reduce] / (1 if reduce == "float32" else 2)
        reason = f"{original.ranks} ranks reduce gradients in {reduce} in another order"
        found.append(RoundingSource(size, reason, in_gradients=True))
    compute = _coarsest([unit.param_dtype for unit in original.units])
    if compute != "float32" and compute and _unsynced(original) and _differs(original, compute):
        reason = (
            f"FSDP1 adds gradients of micro-batches without synchronisation in {compute}, FSDP2 in the dtype "
            "it reduces in"
        )
        found.append(RoundingSource(_EPS[compute], reason, in_gradients=True))
    if original.clips:
        found.append(_norm_rounding(original))
    coarsest = max(found, key=lambda source: source.size)
    computes = _coarsest([compute, original.autocast]) or "float32"
    if why := other_kernels(original, candidate):
        reduces = reduce if world_sizes.differ(original, candidate) else ""
        lowest = _coarsest([computes, reduces, _gradient_dtype(original)])
        size = max(coarsest.size, _EPS[lowest])
        return RoundingSource(size, why, in_gradients=True, of_sums=True, everywhere=True, compute=computes)
    return replace(coarsest, compute=computes)


def other_kernels(original: ArmRecord, candidate: ArmRecord) -> str:
    """Why operations of the two arms round otherwise, one clause; "" where they ran on the same."""
    if world_sizes.differ(original, candidate):
        return f"{original.ranks} and {candidate.ranks} ranks take their sums over other parts of a batch"
    releases = [arm.torch_version.partition("+")[0] for arm in (original, candidate)]
    if releases[0] != releases[1]:
        return f"torch {releases[0]} and torch {releases[1]} compute with other kernels"
    processors = [arm.processor for arm in (original, candidate)]
    if all(processors) and processors[0] != processors[1]:
        return f"{processors[0]} and {processors[1]} compute with other kernels"
    if original.compiled or candidate.compiled:
        return "compiled layers are fused otherwise under FSDP1 and FSDP2"
    return ""


def require_same_kernels(original: ArmRecord, candidate: ArmRecord) -> None:
    """What equal bits ask for.

    Raises:
        UsageError: the arms ran where operations round otherwise.
    """
    if why := other_kernels(original, candidate):
        raise UsageError(
            f"--exact asks for equal bits, and {why}",
            hint="leave --exact out, or run both arms in one place: --baseline GIT_REF, DIR or FILE",
        )


def _norm_rounding(arm: ArmRecord) -> RoundingSource:
    """Both arms add up squares in an order of their own; the error of such a sum grows with its length."""
    dtype = _gradient_dtype(arm)
    if dtype in ("bfloat16", "float16"):
        return RoundingSource(_EPS[dtype], f"the norm of {dtype} gradients: FSDP1 adds it up in fp32")
    elements = sum(math.prod(shape) for shape in arm.shapes.values()) / max(1, arm.ranks)
    size = _FINE * max(1.0, math.sqrt(elements) / 100)
    reason = f"fp32 rounding: the norm of {elements:,.0f} elements per rank, added up in another order"
    return RoundingSource(size, reason)


def _reduce_dtypes(arm: ArmRecord) -> list[str]:
    return [dtype for facts in arm.steps.values() for one in facts for dtype in one.reduce_dtypes]


def _coarsest(dtypes: list[str]) -> str:
    return max((dtype for dtype in dtypes if dtype in _EPS), key=lambda dtype: _EPS[dtype], default="")


def _unsynced(arm: ArmRecord) -> bool:
    """Whether some of several backward passes of a step reduced no gradient."""
    return any(
        0 in one.reductions and len(one.reductions) > 1 for facts in arm.steps.values() for one in facts
    )


def _differs(arm: ArmRecord, compute: str) -> bool:
    return any(unit.param_dtype == compute and unit.reduce_dtype != compute for unit in arm.units)


def _gradient_dtype(arm: ArmRecord) -> str:
    return next((parts[0].dtype for parts in arm.tensors(1, "gradient").values()), "")


def entry_limit(source: RoundingSource) -> Limit:
    """Rounding where it enters, which excuses nothing that has grown."""
    return lambda step, quantity, _name: _floor(source, step, quantity)


def growing_limit(source: RoundingSource, begins: int) -> Limit:
    """Without a measurement: rounding where it enters, times a fixed growth for each step since.

    Args:
        begins: the step of the first difference. Steps that were equal to the last bit let nothing grow.
    """

    def limit(step: int, quantity: str, _name: str) -> float:
        floor = _floor(source, step, quantity)
        return max(floor, min(floor * GROWTH_PER_STEP ** max(0, step - begins), MOST_GROWN))

    return limit


def _floor(source: RoundingSource, step: int, quantity: str) -> float:
    """The least that is allowed: before its source is reached, coarse rounding excuses nothing.

    The loss of the first step comes before every source; its gradients come before clipping.
    """
    first = step == 0 or (
        step == 1
        and not source.everywhere
        and (quantity == "loss" or (quantity == "gradient" and not source.in_gradients))
    )
    return RoundingSource(_FINE, "").entry if first else source.entry


def measured_limits(noise: Comparison, source: RoundingSource) -> Limit:
    """Limits from the difference between the original and itself perturbed.

    A tensor is allowed a factor times its own noise or the median noise of its kind, whichever is larger, and
    never less than rounding where it enters. Single numbers, which can agree by luck, are allowed what any of
    them showed so far. Where weights were changed as well, the first step's noise says nothing of gradients.
    """
    seen = _Noise(noise)

    def limit(step: int, quantity: str, name: str) -> float:
        floor = _floor(source, step, quantity)
        before = quantity == "loss" or (source.weights and not source.in_gradients)
        if step == 0 or (step == 1 and before and not source.everywhere):
            return floor
        until = seen.last if source.weights and step > 1 else step
        own = seen.of_kind(quantity, until) if quantity in _SCALARS else seen.of(quantity, name, step, until)
        return max(floor, source.factor * own)

    return limit


def measured_origin(source: RoundingSource, arm: str = "original") -> str:
    """Where the limits of `measured_limits` come from, for the reader.

    Args:
        arm: which one was run again.
    """
    words = (
        f"{source.factor} times what the {arm} differs from itself with its gradients changed by "
        f"{source.size:.1e} ({source.reason})"
    )
    if source.of_sums:
        words += ", and small ones by as much as those of usual size: they are sums of terms that cancel"
    if source.everywhere and source.compute == "float32":
        words += f"; its weights were changed by {source.weights:.1e}"
    elif source.weights:
        words += (
            f" and its weights by {source.weights:.1e}: in {source.compute} the last bit of a weight shows "
            "once it crosses a rounding boundary, so steps after the first are judged by the largest of "
            "their noise"
        )
    return words


class _Noise:
    """Noise by step, kind and name."""

    def __init__(self, noise: Comparison) -> None:
        finite = [one for one in noise.differences if math.isfinite(one.relative)]
        self.own = {(one.step, one.quantity, one.name): one.relative for one in finite}
        self.kinds: dict[tuple[int, str], list[float]] = {}
        for one in finite:
            self.kinds.setdefault((one.step, one.quantity), []).append(one.relative)
        self.last = max((one.step for one in finite), default=0)

    def of_kind(self, quantity: str, until: int) -> float:
        """The largest of a kind up to a step."""
        sizes = [max(some) for (at, kind), some in self.kinds.items() if kind == quantity and at <= until]
        return max(sizes, default=0.0)

    def of(self, quantity: str, name: str, first: int, last: int) -> float:
        """The largest over some steps of a tensor's own noise and the median of its kind."""
        found = [0.0]
        for step in range(first, max(first, last) + 1):
            of_kind = sorted(self.kinds.get((step, quantity), [0.0]))
            found += [self.own.get((step, quantity, name), 0.0), of_kind[len(of_kind) // 2]]
        return max(found)
