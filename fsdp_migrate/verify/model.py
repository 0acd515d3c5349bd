"""What the verifier is asked and what it answers; the words every module of `verify` shares.

An *arm* is one of the two jobs: the original (FSDP1) and the candidate (FSDP2). A *quantity* is what is
compared: a weight, a gradient, a loss. A *step* is one call of `optimizer.step()`; step 0 is the state before
the first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from fsdp_migrate.verify.resumed import Resumed

Device = Literal["auto", "cuda", "cpu"]

CLIPPED = "gradient as the optimizer got it"
"""The quantity after clipping and unscaling; recorded only where it is not the gradient itself."""
SAVED = "saved tensor"
"""The quantity of tensors given to `torch.save`."""
AT_THE_END = " at the end"
"""In names of tensors that are looked at once more when the script ends or is stopped."""
ANSWER = "answer without gradients"
"""The quantity of what models return when they are called without gradients."""


class ArmName(str, Enum):
    """The two jobs under comparison, and the original again: for rounding noise, unsharded, under others."""

    ORIGINAL = "original"
    CANDIDATE = "candidate"
    NOISE = "noise"
    UNSHARDED = "unsharded"
    DDP = "ddp"
    DEEPSPEED = "deepspeed"


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """How both arms are started.

    Args:
        nproc: processes on this machine.
        nnodes: machines; more than one needs `rdzv_endpoint` and a `keep` directory that all machines share.
        steps: optimizer steps after which an arm is stopped; a job that ends earlier is compared as far as it
            got.
        timeout_s: seconds without progress on any rank after which an arm is called hung.
        keep: directory that receives the records and logs of every rank; a temporary one when `None`.
        preload: start ranks by forking a process that has imported torch (several times faster than a fresh
            interpreter for each rank).
        fixed_order: sum gradients of 3 and more ranks in rank order in both arms, which makes them comparable
            to the last bit.
        measure_noise: when the arms differ by little, run the original again with its gradients perturbed in
            the last bit, and judge against the difference this makes.
        profile: run both arms again, in turns, for their speed and memory.
        also: what else to run the original under beside them: "ddp", "deepspeed".
        third_arm: run the original once more, unsharded and in fp32, to tell which arm is wrong.
        full_limit_bytes: tensors each rank keeps in full; of later ones it keeps digests and sketches, which
            tell equality and the size of a difference, not its place.
        every_element: up to that limit keep large tensors in full too, whatever it costs.
        exact: no difference is allowed, not in the last bit; norms for clipping are added up in float64.
        as_gpu: in a rehearsal `torch.cuda.is_available()` answers True to the script, which may insist on it.
    """

    nproc: int = 2
    nnodes: int = 1
    rdzv_endpoint: str = ""
    steps: int = 5
    device: Device = "auto"
    timeout_s: float = 300.0
    keep: Path | None = None
    preload: bool = True
    fixed_order: bool = True
    measure_noise: bool = True
    third_arm: bool = False
    profile: bool = False
    also: tuple[str, ...] = ()
    full_limit_bytes: int = 1 << 30
    every_element: bool = False
    as_gpu: bool = False
    exact: bool = False


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """Verify a user's script.

    Args:
        script: the candidate: a file, or a module name when `as_module`.
        arguments: what the script gets after its name.
        baseline: a git revision, a directory or a file holding the original; `None` takes what `rewrite`
            recorded.
        cwd: directory the user would start the script from.
        checkpoint: what stands for `{checkpoint}` in the arguments, in either arm.
    """

    script: str
    arguments: tuple[str, ...] = ()
    as_module: bool = False
    baseline: str | None = None
    cwd: Path = field(default_factory=Path.cwd)
    launch: LaunchOptions = LaunchOptions()
    checkpoint: Resumed | None = None


class Outcome(str, Enum):
    """What a check found."""

    EQUAL = "equal"
    """Equal to the last bit."""
    WITHIN = "within tolerance"
    DIFFERS = "differs"
    NOT_OBSERVED = "not observed"


@dataclass(frozen=True, slots=True)
class Difference:
    """One tensor (or number) that is not the same in both arms.

    Args:
        step: optimizer step, from 1; 0 before the first.
        quantity: "weight", "gradient", "loss", "optimizer state exp_avg" ...
        name: FQN of the parameter, or the rank for a number every rank has of its own.
        max_abs: largest absolute difference of two elements, in the tensor's own unit.
        relative: l2 norm of the difference over the larger l2 norm of the two.
        limit: the relative difference that was allowed; 0 where equality was expected.
        original: value at `index` (or the number itself), or the norm where only digests were kept.
    """

    step: int
    quantity: str
    name: str
    max_abs: float
    relative: float
    limit: float
    original: float
    candidate: float
    index: tuple[int, ...] = ()

    @property
    def fails(self) -> bool:
        """Whether this is more than rounding explains; a NaN in one arm alone always is."""
        return not self.relative <= self.limit


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the verdict.

    Args:
        title: what was compared, in the user's words.
        detail: numbers behind the outcome, one sentence.
        tolerance: the largest relative difference that was allowed, 0 for equality.
        origin: where that tolerance comes from.
        numbers: whether numbers were compared, bit by bit.
    """

    title: str
    outcome: Outcome
    detail: str = ""
    compared: int = 0
    largest_relative: float = 0.0
    tolerance: float = 0.0
    origin: str = ""
    numbers: bool = False


@dataclass(frozen=True, slots=True)
class Cause:
    """A likely reason, named by a rule: what was seen, and what to do."""

    code: str
    text: str
    remedy: str


@dataclass(frozen=True, slots=True)
class ArmSummary:
    """Figures of one arm that stand beside the verdict.

    Args:
        step_seconds: median time of a step without the probes' own time; `None` with fewer than 2 steps.
        probe_seconds: median time the probes took in a step.
        peak_bytes: largest over the ranks: allocated GPU memory, or resident memory of the process.
        units: FSDP units, by FQN ("" is the root).
        collectives: per optimizer step on rank 0 (the last step), by name.
        losses: mean over ranks and micro-batches, per step.
    """

    name: ArmName
    kind: str
    steps: int
    step_seconds: float | None
    probe_seconds: float
    peak_bytes: int
    peak_is: str
    units: tuple[str, ...]
    parameters: int
    numel: int
    collectives: tuple[tuple[str, int], ...]
    losses: tuple[float, ...]
    gradient_norms: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """One step of one arm on rank 0: what ran when.

    Args:
        spans: kind ("forward", "backward", "optimizer", "communication", "computation"), begin and end in
            seconds from the begin of the step; spans of one kind do not overlap.
        source: where it was seen, for the reader.
    """

    name: ArmName
    seconds: float
    spans: tuple[tuple[str, float, float], ...]
    source: str


@dataclass(frozen=True, slots=True)
class ArmPerformance:
    """Speed and memory of one arm, run without the probes that record tensors.

    Args:
        steps: that were counted, over all runs.
        step_seconds: median of the slowest rank's time; `None` where nothing was measured.
        spread_seconds: distance of the quartiles.
        tokens_per_second: of one rank; `None` where the model is not given token ids.
        memory: phase, peak allocated and peak reserved bytes of GPU memory, the largest of all ranks.
        collectives: per step on rank 0: name, calls, bytes.
        overlap_percent, exposed_seconds: from GPU kernels in the trace, per step; `None` without a GPU.
        chip: the GPU's name, "" without one.
        mfu_percent: `None` where the chip's peak is not known.
    """

    name: ArmName
    steps: int
    step_seconds: float | None
    spread_seconds: float | None
    tokens_per_second: float | None
    memory: tuple[tuple[str, int, int], ...]
    collectives: tuple[tuple[str, int, int], ...]
    overlap_percent: float | None
    exposed_seconds: float | None
    chip: str
    flop_per_token: float | None
    mfu_percent: float | None


@dataclass(frozen=True, slots=True)
class Died:
    """An arm that crashed, hung or was killed when it had made steps; `where` is "in step 4", say."""

    arm: ArmName
    where: str
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class ParityReport:
    """The verdict and what it rests on.

    Args:
        exact: no difference was allowed, not in the last bit.
        died: arms that did not come to their end; what both had done before is compared, and none passes.
        warnings: what the verdict cannot tell and its reader must know; shown beside it.
        performance: of both arms, where it was measured.
        curves: per quantity, the largest relative difference of each step from 1.
        heat: per parameter, the relative difference of its weight after each step from 0.
        third: how both arms stand to a third, unsharded and in fp32; "" where none was run.
        timelines: of a late step of every arm; empty where none was seen.
    """

    passed: bool
    subject: str
    baseline: str
    nproc: int
    device: str
    torch_version: str
    reduction: str
    steps: int
    original: ArmSummary
    candidate: ArmSummary
    checks: tuple[Check, ...]
    first: Difference | None
    largest: tuple[Difference, ...]
    causes: tuple[Cause, ...]
    notices: tuple[str, ...]
    substitutions: tuple[str, ...]
    not_observed: tuple[str, ...]
    records: Path | None = None
    warnings: tuple[str, ...] = ()
    third: str = ""
    performance: tuple[ArmPerformance, ...] = ()
    curves: tuple[tuple[str, tuple[float, ...]], ...] = ()
    heat: tuple[tuple[str, tuple[float, ...]], ...] = ()
    timelines: tuple[Timeline, ...] = ()
    died: tuple[Died, ...] = ()
    exact: bool = False

    @property
    def agrees(self) -> bool:
        """Whether all that was compared agrees, whatever happened afterwards."""
        return not any(check.outcome is Outcome.DIFFERS for check in self.checks)
