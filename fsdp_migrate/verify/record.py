"""Reads what the probes of all ranks of one arm wrote, and puts full tensors together from the ranks' parts.

Needs no torch: the format is JSON lines and raw little-endian bytes (`probes/recorder.py` writes it).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

EVENTS = "events.jsonl"
TENSORS = "tensors.bin"

_STORED = {
    "bfloat16": np.dtype("<u2"),
    "float16": np.dtype("<f2"),
    "float32": np.dtype("<f4"),
    "float64": np.dtype("<f8"),
    "int64": np.dtype("<i8"),
    "int32": np.dtype("<i4"),
    "int16": np.dtype("<i2"),
    "int8": np.dtype("i1"),
    "uint8": np.dtype("u1"),
    "bool": np.dtype("u1"),
}


@dataclass(frozen=True, slots=True)
class Sums:
    """What is left of a tensor too large to keep; see `probes/sketch.py`."""

    digest: int
    square: float
    projections: tuple[float, ...]


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
        losses: one per backward pass.
        reductions: gradient reductions in each backward pass.
        inputs: digests of what went into the models, in call order.
        clips: function, norm type, and this rank's part of the norm with the ranks that hold the others.
        seconds: wall time since the step before, without the probes' own.
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
    """One FSDP unit and its settings, dtypes "" where none is set."""

    name: str
    kind: str
    param_dtype: str
    reduce_dtype: str
    casts_inputs: bool
    strategy: str
    ranks: int


@dataclass(frozen=True, slots=True)
class OptimizerFacts:
    """One optimizer at one step: hyper-parameters by parameter name, and parameters that belong to no model."""

    step: int
    number: int
    kind: str
    settings: dict[str, tuple[tuple[str, object], ...]]
    foreign: int


@dataclass(slots=True)
class ArmRecord:
    """Everything the ranks of one arm wrote; rank by rank where ranks may differ."""

    ranks: int = 0
    torch_version: str = ""
    kind: str = "not sharded"
    units: list[Unit] = field(default_factory=list)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    trainable: dict[str, bool] = field(default_factory=dict)
    tied: set[tuple[str, ...]] = field(default_factory=set)
    optimizers: list[OptimizerFacts] = field(default_factory=list)
    input_dtypes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    steps: dict[int, list[StepFacts]] = field(default_factory=dict)
    parts: dict[tuple[int, str], dict[str, list[Part]]] = field(default_factory=dict)
    substitutions: list[str] = field(default_factory=list)
    not_observed: list[str] = field(default_factory=list)
    strayed: set[str] = field(default_factory=set)
    peak_bytes: int = 0
    peak_is: str = ""
    ended: dict[int, str] = field(default_factory=dict)

    @property
    def last_step(self) -> int:
        """Steps every rank has completed."""
        complete = [step for step, facts in self.steps.items() if len(facts) == self.ranks]
        return max(complete, default=0)

    def tensors(self, step: int, quantity: str) -> dict[str, list[Part]]:
        """Parts by tensor name; empty where nothing was recorded."""
        found = self.parts.get((step, quantity))
        if found is None and quantity == "gradient as the optimizer got it":
            return self.parts.get((step, "gradient"), {})  # recorded only where it is not the same
        return found or {}

    def state_quantities(self, step: int) -> list[str]:
        """Names of the optimizer-state quantities recorded at `step`."""
        return sorted(what for at, what in self.parts if at == step and what.startswith("optimizer state"))

    def clipped_norms(self, step: int) -> list[list[float]]:
        """Per clipping call of `step`, the whole norm as every rank knows it."""
        facts = self.steps.get(step, [])
        calls = min((len(one.clips) for one in facts), default=0)
        return [[_whole_norm([one.clips[call] for one in facts], rank) for rank in range(len(facts))] for call in range(calls)]


def _whole_norm(clips: list[Clip], rank: int) -> float:
    mine = clips[rank]
    if not mine.ranks:
        return mine.value
    parts = [clips[other].value for other in mine.ranks]
    if math.isinf(mine.norm_type):
        return max(parts)
    return float(sum(part**mine.norm_type for part in parts) ** (1 / mine.norm_type))


def read_arm(folder: Path) -> ArmRecord:
    """Read the record of one arm, written below `folder` by ranks 0, 1, 2 ..."""
    record = ArmRecord()
    for rank, each in enumerate(sorted(folder.glob("rank*"), key=lambda path: int(path.name[4:]))):
        _read_rank(record, rank, each)
    record.ranks = max(record.ranks, len(record.ended))
    return record


def _read_rank(record: ArmRecord, rank: int, folder: Path) -> None:
    blob = folder / TENSORS
    data: NDArray[Any] = np.memmap(blob, dtype=np.uint8, mode="r") if blob.stat().st_size else np.empty(0, np.uint8)
    with (folder / EVENTS).open(encoding="utf-8") as lines:
        for line in lines:
            _take(record, rank, data, json.loads(line))


def _take(record: ArmRecord, rank: int, data: NDArray[Any], event: dict[str, Any]) -> None:
    match event["event"]:
        case "tensors":
            kept = record.parts.setdefault((event["step"], event["quantity"]), {})
            for part in _parts(rank, data, event):
                kept.setdefault(part.name, []).append(part)
        case "step":
            record.steps.setdefault(event["step"], []).append(_step(event))
        case "start":
            record.ranks, record.torch_version = event["ranks"], event["torch"]
        case "parameters":
            record.shapes |= {name: tuple(shape) for name, shape in event["shapes"].items()}
            record.trainable |= event["trainable"]
            record.tied |= {tuple(names) for names in event["tied"]}
        case "model" if rank == 0:
            record.kind = event["kind"]
            record.units += [Unit(**unit) for unit in event["units"]]
        case "optimizer":
            _optimizer(record, rank, event)
        case "input_dtypes" if rank == 0:
            record.input_dtypes = {name: tuple(dtypes) for name, dtypes in event["dtypes"].items()}
        case "substitution" | "not_observed":
            known = record.substitutions if event["event"] == "substitution" else record.not_observed
            if event["text"] not in known:
                known.append(event["text"])
        case "strayed":
            record.strayed |= set(event["files"])
        case "end":
            record.ended[rank] = event["reason"]
            record.peak_bytes, record.peak_is = max(record.peak_bytes, event["peak_bytes"]), event["peak_is"]


def _optimizer(record: ArmRecord, rank: int, event: dict[str, Any]) -> None:
    """Names differ by rank (a rank knows what it holds a part of), so the ranks' maps are joined."""
    settings = {
        name: tuple(sorted(group["settings"].items())) for group in event["groups"] for name in group["names"]
    }
    if rank == 0:
        record.optimizers.append(
            OptimizerFacts(event["step"], event["number"], event["kind"], settings, event["foreign"])
        )
        return
    for known in record.optimizers:
        if (known.step, known.number) == (event["step"], event["number"]):
            known.settings.update(settings)


def _step(event: dict[str, Any]) -> StepFacts:
    clips = tuple(
        Clip(
            clip["function"],
            clip["max_norm"],
            clip["norm_type"],
            float("nan") if clip["norm"]["value"] is None else clip["norm"]["value"],
            tuple(clip["norm"]["ranks"]),
        )
        for clip in event["clips"]
    )
    return StepFacts(
        event["step"],
        tuple(event["losses"]),
        tuple(event["reductions"]),
        tuple(event["reduce_dtypes"]),
        tuple(event["inputs"]),
        clips,
        event["collectives"],
        event["seconds"],
        event["probe_seconds"],
    )


def _parts(rank: int, data: NDArray[Any], event: dict[str, Any]) -> Iterator[Part]:
    dtype = event["dtype"]
    stored = _STORED.get(dtype, np.dtype("u1"))
    for item in event["items"]:
        name, shape, numel, start, box = item["slot"]
        values, sums = None, None
        if "at" in item:
            width = stored.itemsize
            values = data[item["at"] : item["at"] + numel * width].view(stored)
        else:
            kept = item["sketch"]
            sums = Sums(kept["digest"], kept["square"], tuple(kept["projections"]))
        where = None if box is None else (tuple(box[0]), tuple(box[1]))
        yield Part(rank, name, dtype, tuple(shape), numel, start, where, values, sums)


def widen(stored: NDArray[Any], dtype: str) -> NDArray[np.float64]:
    """Stored elements as float64."""
    if dtype == "bfloat16":
        return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return stored.astype(np.float64)


@dataclass(frozen=True, slots=True)
class Whole:
    """A full tensor put together: its elements, or sums where those were not kept.

    Args:
        stored: flat, `None` where only sums were kept.
        complete: whether the parts cover the tensor.
        replicas_differ: ranks that hold the same elements with other values.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    stored: NDArray[Any] | None
    sums: Sums | None
    complete: bool
    replicas_differ: tuple[int, ...]


def assemble(parts: list[Part]) -> Whole:
    """Put the parts of one tensor together; the first rank's wins where several hold the same elements."""
    first = parts[0]
    distinct: dict[object, Part] = {}
    strangers: list[int] = []
    for part in parts:
        known = distinct.setdefault(part.place, part)
        if known is not part and not _same(known, part):
            strangers.append(part.rank)
    numel = math.prod(first.shape)
    complete = sum(part.numel for part in distinct.values()) == numel
    whole: NDArray[Any] | None = None
    sums: Sums | None = None
    kept = [(part, part.stored) for part in distinct.values() if part.stored is not None]
    if len(kept) == len(distinct):
        whole = np.zeros(numel, dtype=kept[0][1].dtype)
        for part, stored in kept:
            _lay(whole, part, stored)
    else:
        sums = _add([part.sums for part in distinct.values() if part.sums is not None])
    return Whole(first.name, first.dtype, first.shape, whole, sums, complete, tuple(strangers))


def _same(left: Part, right: Part) -> bool:
    if left.stored is not None and right.stored is not None:
        return left.stored.tobytes() == right.stored.tobytes()
    return left.sums == right.sums


def _lay(whole: NDArray[Any], part: Part, stored: NDArray[Any]) -> None:
    if part.box is None:
        assert part.start is not None
        whole[part.start : part.start + part.numel] = stored
        return
    offsets, sizes = part.box
    window = tuple(slice(offset, offset + size) for offset, size in zip(offsets, sizes, strict=True))
    whole.reshape(part.shape)[window] = stored.reshape(sizes)


def _add(all_sums: list[Sums]) -> Sums:
    projections = np.sum([sums.projections for sums in all_sums], axis=0)
    return Sums(
        sum(sums.digest for sums in all_sums) % (1 << 64),
        sum(sums.square for sums in all_sums),
        tuple(float(one) for one in projections),
    )
