"""The record of one arm: what the probes of all its ranks saw, as values. Needs no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fsdp_migrate.verify.answer import Answer
from fsdp_migrate.verify.model import CLIPPED
from fsdp_migrate.verify.written import Written


@dataclass(frozen=True, slots=True)
class Sums:
    """What is left of a tensor too large to keep; see `probes/sketch.py`."""

    digest: int
    further: int
    square: float
    projections: tuple[float, ...]

    def same(self, other: Sums) -> bool:
        """Whether they are of equal elements, by both digests."""
        return (self.digest, self.further) == (other.digest, other.further)


def widen(stored: NDArray[Any], dtype: str) -> NDArray[np.float64]:
    """Stored elements as float64."""
    if dtype == "bfloat16":
        return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return stored.astype(np.float64)


@dataclass(frozen=True, slots=True)
class Part:
    """What one rank holds of one tensor.

    Args:
        shape: of the full tensor.
        start: flat index of the first element there, or `None` with a `box` of offsets and sizes.
        stored: the elements as stored (bfloat16 as its 16 bits), 1-D; `None` where only sums were kept.
    """

    rank: int
    name: str
    dtype: str
    shape: tuple[int, ...]
    numel: int
    start: int | None
    box: tuple[tuple[int, ...], tuple[int, ...]] | None
    stored: NDArray[Any] | None
    sums: Sums | None

    @property
    def place(self) -> object:
        """Equal for two parts that hold the same elements."""
        return (self.start, self.numel) if self.box is None else self.box

    def values(self) -> NDArray[np.float64]:
        """The elements as float64, 1-D."""
        assert self.stored is not None
        return widen(self.stored, self.dtype)


@dataclass(frozen=True, slots=True)
class StepFacts:
    """What one rank saw of one optimizer step.

    Args:
        losses: one per backward pass, as `backward` was called on it.
        reductions: gradient reductions in each backward pass.
        inputs: digests of what went into the models, in call order.
        clips: function, norm type, and this rank's part of the norm with the ranks that hold the others.
        seconds: wall time since the step before, without the probes' own.
        zeroed: for each call of `zero_grad` since the step before, the backward passes made before it.
        random: digest of the random number generators when a model was first called.
        rewritten: weights changed since the step before by something else than the optimizer.
        bytes: that collectives gather, scatter or reduce, by name.
        evaluating: modules in evaluation mode when a model was first called.
        spans: what the time went to: kind, begin and end in seconds.
        unscaled: the losses before a gradient scaler took them; empty without one.
        scales: what scalers multiplied losses by, in order.
        outputs: digests of a few elements of what the models returned, in call order.
    """

    step: int
    losses: tuple[float, ...]
    reductions: tuple[int, ...]
    reduce_dtypes: tuple[str, ...]
    inputs: tuple[str, ...]
    clips: tuple[Clip, ...]
    collectives: dict[str, int]
    seconds: float
    probe_seconds: float
    zeroed: tuple[int, ...] = ()
    random: str = ""
    rewritten: tuple[str, ...] = ()
    evaluating: int = 0
    bytes: dict[str, int] = field(default_factory=dict)
    spans: tuple[tuple[str, float, float], ...] = ()
    unscaled: tuple[float, ...] = ()
    scales: tuple[float, ...] = ()
    outputs: tuple[str, ...] = ()

    @property
    def own_losses(self) -> tuple[float, ...]:
        """The losses that the job computed, without a gradient scaler's factor."""
        return self.unscaled or self.losses


@dataclass(frozen=True, slots=True)
class Clip:
    """One clipping call; `ranks` is empty where the norm is whole."""

    function: str
    max_norm: float | None
    norm_type: float
    value: float
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Unit:
    """One FSDP unit and its settings, dtypes "" where none is set.

    Args:
        shards: ranks that hold a part each; 0 where it was not recorded.
        reshards: freed after forward.
    """

    name: str
    kind: str
    param_dtype: str
    reduce_dtype: str
    casts_inputs: bool
    strategy: str
    shards: int = 0
    replicas: int = 0
    reshards: bool = False


@dataclass(frozen=True, slots=True)
class OptimizerFacts:
    """One optimizer at one step: settings by parameter name, and how many parameters no model has.

    Args:
        of_others: how many of these are of models that are only called without gradients.
    """

    step: int
    number: int
    kind: str
    settings: dict[str, tuple[tuple[str, object], ...]]
    foreign: int
    of_others: int = 0


@dataclass(frozen=True, slots=True)
class Load:
    """One outermost call of `load_state_dict`, of a "model" or an "optimizer", after `step` steps."""

    step: int
    what: str
    unmatched: int


@dataclass(frozen=True, slots=True)
class Save:
    """One call of `torch.save` with tensors in it: their names, and those of which a part was given only."""

    step: int
    rank: int
    names: tuple[str, ...]
    partial: tuple[str, ...]


@dataclass(slots=True)
class ArmRecord:
    """Everything the ranks of one arm wrote; rank by rank where ranks may differ.

    Attributes:
        saved_numbers: by rank, the step after which a file was saved and the plain numbers in it.
        sharded: whether FSDP manages a parameter.
        checkpointed: modules under activation checkpointing.
        checkpointing: their names; none in older records.
        sparse: steps of which neither the optimizer's state was recorded, but for counters, nor the gradients
            that it got.
        outputs: digests of what units returned in the first forward pass of the training, in order, by rank.
        compiled: whether a compiler made kernels of a part of it.
        resumes: the checkpoint that it was to resume from; "" where it was not.
        resumed: whether something of it was opened.
        looks_on: whether calls without gradients, and what follows the last step, are recorded.
        elsewhere: "write" or "read", and a path outside of the arm's shadow.
        printed: lines rank 0 printed or logged.
        written: files that its ranks wrote into its shadow.
        processor: what computed, in its maker's words; "" where the record does not say.
    """

    ranks: int = 0
    torch_version: str = ""
    processor: str = ""
    kind: str = "not sharded"
    units: list[Unit] = field(default_factory=list)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    trainable: dict[str, bool] = field(default_factory=dict)
    sharded: dict[str, bool] = field(default_factory=dict)
    checkpointed: int = 0
    checkpointing: list[str] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)
    saves: list[Save] = field(default_factory=list)
    saved_numbers: dict[int, list[tuple[int, dict[str, float]]]] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)
    tied: set[tuple[str, ...]] = field(default_factory=set)
    optimizers: list[OptimizerFacts] = field(default_factory=list)
    input_dtypes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    autocast: str = ""
    outputs: dict[int, dict[str, str]] = field(default_factory=dict)
    steps: dict[int, list[StepFacts]] = field(default_factory=dict)
    sparse: set[int] = field(default_factory=set)
    parts: dict[tuple[int, str], dict[str, list[Part]]] = field(default_factory=dict)
    substitutions: list[str] = field(default_factory=list)
    not_observed: list[str] = field(default_factory=list)
    compiled: bool = False
    resumes: str = ""
    resumed: bool = False
    looks_on: bool = False
    strayed: set[str] = field(default_factory=set)
    elsewhere: set[tuple[str, str]] = field(default_factory=set)
    printed: tuple[str, ...] = ()
    written: Written = field(default_factory=dict)
    peak_bytes: int = 0
    peak_is: str = ""
    ended: dict[int, str] = field(default_factory=dict)

    @property
    def clips(self) -> bool:
        """Whether gradients are clipped by torch's functions."""
        return any(one.clips for facts in self.steps.values() for one in facts)

    @property
    def shares_weights(self) -> bool:
        """Whether ranks hold a part of the weights each, as far as was recorded."""
        return any(unit.shards > 1 for unit in self.units)

    @property
    def last_step(self) -> int:
        """Steps every rank has completed."""
        complete = [step for step, facts in self.steps.items() if len(facts) == self.ranks]
        return max(complete, default=0)

    def tensors(self, step: int, quantity: str) -> dict[str, list[Part]]:
        """Parts by tensor name; empty where nothing was recorded."""
        found = self.parts.get((step, quantity))
        if found is None and quantity == CLIPPED and step not in self.sparse:
            return self.parts.get((step, "gradient"), {})  # recorded only where it is not the same
        return found or {}

    def state_quantities(self, step: int) -> list[str]:
        """Names of the optimizer-state quantities recorded at `step`."""
        return sorted(what for at, what in self.parts if at == step and what.startswith("optimizer state"))

    def within_limits(self, step: int) -> bool:
        """Whether gradients are clipped in `step`, by limits that no norm exceeds (rank 0)."""
        clips = self.steps[step][0].clips
        norms = [each[0] for each in self.clipped_norms(step)]
        return bool(clips) and all(
            one.max_norm is not None and norm <= one.max_norm for one, norm in zip(clips, norms, strict=False)
        )

    def clipped_norms(self, step: int) -> list[list[float]]:
        """Per clipping call of `step`, the whole norm as every rank knows it."""
        facts = self.steps.get(step, [])
        calls = min((len(one.clips) for one in facts), default=0)
        return [
            [_whole_norm([one.clips[call] for one in facts], rank) for rank in range(len(facts))]
            for call in range(calls)
        ]


def _whole_norm(clips: list[Clip], rank: int) -> float:
    mine = clips[rank]
    if not mine.ranks:
        return mine.value
    parts = [clips[other].value for other in mine.ranks]
    if math.isinf(mine.norm_type):
        return max(parts)
    return float(sum(part**mine.norm_type for part in parts) ** (1 / mine.norm_type))


def same_units(original: ArmRecord, candidate: ArmRecord) -> list[tuple[Unit, Unit]]:
    """Units of the same name in both arms."""
    by_name = {unit.name: unit for unit in original.units}
    return [(by_name[unit.name], unit) for unit in candidate.units if unit.name in by_name]
