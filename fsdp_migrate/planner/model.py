"""The words of a plan: what a job is asked to be, and what was measured of its rank 0, in bytes per GPU."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Category(enum.Enum):
    """What a storage is for; the order is that of the report."""

    PARAMETERS = "parameters"
    BUFFERS = "buffers"
    GRADIENTS = "gradients"
    OPTIMIZER = "optimizer_state"
    GATHERED = "gathered_units"
    REDUCED = "gradient_reduction"
    INPUTS = "inputs"
    ACTIVATIONS = "activations"
    TEMPORARY = "temporary"


class Phase(enum.Enum):
    """A part of a training step."""

    FORWARD = "forward"
    BACKWARD = "backward"
    CLIP = "clipping"
    OPTIMIZER = "optimizer"


STRATEGIES = ("full_shard", "shard_grad_op", "no_shard")
DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True, slots=True)
class Settings:
    """How a job shards, computes and steps.

    Attributes:
        world: ranks, one per GPU.
        replicate: groups of ranks that hold the same shards; above 1 is hybrid sharding.
        strategy: one of `STRATEGIES`: what becomes of gathered parameters between forward and backward.
        dtype: of the parameters as stored; None keeps what the factory built.
        param_dtype: what FSDP casts gathered parameters to; None is the stored dtype.
        reduce_dtype: what gradients are reduced in; None is `param_dtype`.
        checkpointing: every wrapped unit but the root keeps its inputs alone and computes again.
        optimizer: a name of `optimizers.NAMED`, or `pkg.module:function`.
        use_orig_params: FSDP1's; None is False, or True where a unit mixes frozen and trained parameters.
    """

    world: int
    replicate: int = 1
    strategy: str = "full_shard"
    dtype: str | None = None
    param_dtype: str | None = None
    reduce_dtype: str | None = None
    checkpointing: bool = False
    optimizer: str = "adamw"
    use_orig_params: bool | None = None

    @property
    def shard(self) -> int:
        """Ranks that share one copy of the parameters."""
        return self.world // self.replicate


@dataclass(frozen=True, slots=True)
class Inputs:
    """What the model is called with; nothing of it set: it is not called, and activations stay unknown.

    Attributes:
        function: `pkg.module:function`, called without arguments; returns a tensor, the positional arguments,
            the keyword arguments, or both as (args, kwargs).
        loss: `pkg.module:function` from the model's output to its loss.
        batch: sequences per GPU of a model that takes `input_ids`.
        sequence: tokens in each.
    """

    function: str | None = None
    loss: str | None = None
    batch: int | None = None
    sequence: int | None = None

    @property
    def are_known(self) -> bool:
        """Whether the model can be called."""
        return self.function is not None or self.batch is not None


@dataclass(frozen=True, slots=True)
class Job:
    """One job to plan: `model` and `wrap` as `convert-ckpt` takes them."""

    model: str
    wrap: str | None
    settings: Settings
    inputs: Inputs


@dataclass(frozen=True, slots=True)
class Peak:
    """The moment of a step at which most is allocated.

    Attributes:
        unit: FQN of the unit whose forward or backward it was, "" for what is in none but the root.
        parts: bytes by category at that moment; their sum is `size_bytes`.
    """

    size_bytes: int
    phase: Phase
    unit: str
    parts: dict[Category, int]


@dataclass(frozen=True, slots=True)
class ArmMemory:
    """What one rank of one arm allocates, in the second of two steps.

    Attributes:
        name: "FSDP1" or "FSDP2".
        rank: the one that holds most.
        parameters: storage of the shards, padding included.
        gradients: storage of their gradients when the optimizer steps.
        gathered_units: most that gathered parameters and their all-gather buffers take at a time.
        gradient_reduction: most that unreduced gradients and reduction buffers take at a time.
        activations: what of the forward pass is alive when it ends; None where the model was not called.
        peak: without the activations where they are not known.
        use_orig_params: as used; None under FSDP2.
    """

    name: str
    rank: int
    parameters: int
    buffers: int
    gradients: int
    optimizer_state: int
    gathered_units: int
    gradient_reduction: int
    activations: int | None
    peak: Peak
    use_orig_params: bool | None = None


@dataclass(frozen=True, slots=True)
class ArmRefused:
    """An arm that torch or the model did not let run, in torch's words."""

    name: str
    reason: str


Arm = ArmMemory | ArmRefused


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The model before it is sharded.

    Attributes:
        parameters: elements, tied ones once.
        trainable: those that get gradients.
        units: FQNs of the units, the root not among them.
        advice: what to wrap, where nothing is.
    """

    parameters: int
    trainable: int
    units: tuple[str, ...]
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Gpu:
    """Memory that a job may fill."""

    name: str
    memory: int


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another way to run the same job under FSDP2; `batch` is None where inputs come from a function."""

    settings: Settings
    batch: int | None
    arm: Arm


@dataclass(frozen=True, slots=True)
class Plan:
    """All that was found out; `chosen` is the alternative to take, of those that fit."""

    job: Job
    facts: ModelFacts
    arms: tuple[Arm, ...]
    gpu: Gpu | None
    alternatives: tuple[Alternative, ...]
    chosen: Alternative | None
    notes: tuple[str, ...]
    torch_version: str


def fits(arm: Arm, gpu: Gpu) -> bool:
    """Whether an arm's peak is within a GPU's memory."""
    return isinstance(arm, ArmMemory) and arm.peak.size_bytes <= gpu.memory
