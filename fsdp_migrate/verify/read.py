"""Reads what the probes of all ranks of one arm wrote.

The format is JSON lines and raw little-endian bytes beside them; `probes/recorder.py` writes it. A record may
have been made by an older or a newer program: of what it lacks nothing is concluded, and what is not known
here is passed over.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fsdp_migrate.verify.answer import Answer
from fsdp_migrate.verify.record import (
    ArmRecord,
    Clip,
    Load,
    OptimizerFacts,
    Part,
    Save,
    StepFacts,
    Sums,
    Unit,
)
from fsdp_migrate.verify.spec import EVENTS, SAFETENSORS, TENSORS

_STORED: dict[str, np.dtype[Any]] = {
    "bfloat16": np.dtype("<u2"),
    "float16": np.dtype("<f2"),
    "float32": np.dtype("<f4"),
    "float64": np.dtype("<f8"),
    "int64": np.dtype("<i8"),
    "int32": np.dtype("<i4"),
    "int16": np.dtype("<i2"),
    "int8": np.dtype("i1"),
    "uint64": np.dtype("<u8"),
    "uint32": np.dtype("<u4"),
    "uint16": np.dtype("<u2"),
    "uint8": np.dtype("u1"),
    "bool": np.dtype("u1"),
}


def read_arm(folder: Path) -> ArmRecord:
    """Read the record of one arm, written below `folder` by ranks 0, 1, 2 ..."""
    record = ArmRecord()
    for rank, each in enumerate(sorted(folder.glob("rank*"), key=lambda path: int(path.name[4:]))):
        _read_rank(record, rank, each)
    record.ranks = max(record.ranks, len(record.ended))
    return record


def _read_rank(record: ArmRecord, rank: int, folder: Path) -> None:
    data = _elements(folder)
    with (folder / EVENTS).open(encoding="utf-8") as lines:
        for line in lines:
            if not line.endswith("\n"):  # what a rank was killed in the middle of
                break
            _take(record, rank, data, json.loads(line))


def _elements(folder: Path) -> NDArray[Any]:
    """The bytes that events refer to, from the file of a run or of a record that was kept."""
    blob, begin = folder / TENSORS, 0
    if not blob.exists():
        blob = folder / SAFETENSORS
        with blob.open("rb") as stream:
            begin = 8 + int.from_bytes(stream.read(8), "little")
    if blob.stat().st_size <= begin:
        return np.empty(0, np.uint8)
    return np.memmap(blob, dtype=np.uint8, mode="r", offset=begin)


def _take(record: ArmRecord, rank: int, data: NDArray[Any], event: dict[str, Any]) -> None:
    match event["event"]:
        case "tensors":
            kept = record.parts.setdefault((event["step"], event["quantity"]), {})
            for part in _parts(rank, data, event):
                kept.setdefault(part.name, []).append(part)
        case "step":
            record.steps.setdefault(event["step"], []).append(_step(event))
            if event.get("sparse"):
                record.sparse.add(event["step"])
        case "start":
            record.ranks, record.torch_version = event["ranks"], event["torch"]
            record.looks_on = event.get("looks_on", False)
        case "parameters":
            record.shapes |= {name: tuple(shape) for name, shape in event["shapes"].items()}
            record.trainable |= event["trainable"]
            record.sharded |= event.get("sharded", {})
            record.tied |= {tuple(names) for names in event.get("tied", ())}
        case "model" if rank == 0:
            if "FSDP" not in record.kind:
                record.kind = event["kind"]
            record.units += [_unit(unit) for unit in event["units"]]
            names = event.get("checkpointing", ())
            record.checkpointed += event.get("checkpointed", len(names))
            record.checkpointing += names
        case "load" if rank == 0:
            record.loads.append(Load(event["step"], event["what"], event["unmatched"]))
        case "save":
            record.saves.append(
                Save(event["step"], rank, tuple(event["names"]), tuple(event.get("partial", ())))
            )
        case "saved_numbers":
            record.saved_numbers.setdefault(rank, []).append((event["step"], event["numbers"]))
        case "answer":
            facts = (event["model"], event["call"], event["inputs"], event["training"])
            record.answers.append(Answer(event["step"], rank, *facts, event.get("random", "")))
        case "output":
            record.outputs.setdefault(rank, {}).setdefault(event["unit"], event["digest"])
        case "optimizer":
            _optimizer(record, rank, event)
        case "input_dtypes" if rank == 0:
            record.autocast = event.get("autocast", "")
            record.input_dtypes |= {name: tuple(dtypes) for name, dtypes in event["dtypes"].items()}
        case "substitution" | "not_observed":
            known = record.substitutions if event["event"] == "substitution" else record.not_observed
            if event["text"] not in known:
                known.append(event["text"])
        case "compiled":
            record.compiled = True
        case "resumes":
            record.resumes = event["path"]
        case "resumed":
            record.resumed = True
        case "elsewhere":
            record.elsewhere.add((event["what"], event["path"]))
        case "strayed":
            record.strayed |= set(event["files"])
        case "end":
            record.ended[rank] = event["reason"]
            record.processor = record.processor or event.get("processor", "")
            record.peak_bytes, record.peak_is = max(record.peak_bytes, event["peak_bytes"]), event["peak_is"]


def _optimizer(record: ArmRecord, rank: int, event: dict[str, Any]) -> None:
    """Names differ by rank (a rank knows what it holds a part of), so the ranks' maps are joined."""
    settings = {
        name: tuple(sorted(group["settings"].items())) for group in event["groups"] for name in group["names"]
    }
    if rank == 0:
        record.optimizers.append(
            OptimizerFacts(
                event["step"],
                event["number"],
                event["kind"],
                settings,
                event["foreign"],
                event.get("of_others", 0),
            )
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
        tuple(event.get("zeroed", ())),
        event.get("random", ""),
        tuple(event.get("rewritten", ())),
        event.get("evaluating", 0),
        event.get("bytes", {}),
        tuple((kind, begin, end) for kind, begin, end in event.get("spans", ())),
        tuple(event.get("unscaled", ())),
        tuple(event.get("scales", ())),
        tuple(event.get("outputs", ())),
    )


def _unit(unit: dict[str, Any]) -> Unit:
    known = {field.name for field in fields(Unit)}
    return Unit(**{key: value for key, value in unit.items() if key in known})


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
            further = kept.get("further", 0)  # versions 1 and 2, whose sums are refused, have none
            sums = Sums(kept["digest"], further, kept["square"], tuple(kept["projections"]))
        where = None if box is None else (tuple(box[0]), tuple(box[1]))
        yield Part(rank, name, dtype, tuple(shape), numel, start, where, values, sums)
