"""Records that are kept: what was seen of one run, to be compared later, elsewhere, or without FSDP1.

A record is a directory: `record.json` (version, environment, arguments), and per rank `events.jsonl` (scalars
and where every tensor lies, a line each) and `tensors.safetensors` (the elements that were kept in full; of
others the events hold digests and sketches). Reading one needs no torch.
"""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from fsdp_migrate.errors import UsageError
from fsdp_migrate.verify.model import LaunchOptions, VerifyRequest
from fsdp_migrate.verify.read import read_arm
from fsdp_migrate.verify.record import ArmRecord
from fsdp_migrate.verify.schedule import is_due
from fsdp_migrate.verify.spec import EVENTS, SAFETENSORS, TENSORS

_MANIFEST = "record.json"
_FORMAT, _VERSION = "fsdp-migrate record", 4
_OTHER_SUMS = 3
"""The last version whose digests and sketches were other sums."""
_STATES_BY_SCHEDULE = (2,)
"""Versions that kept states of some steps and did not say of which; the first kept those of all."""
_KEPT_VARIABLES = ("CUDA_", "NCCL_", "TORCH_", "PYTORCH_", "OMP_", "CUBLAS_", "FSDP_")
_SAFE = {
    "bfloat16": "BF16",
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
}
_BYTES = {"BF16": 2, "F16": 2, "F32": 4, "F64": 8, "I64": 8, "I32": 4, "I16": 2, "I8": 1}
_BYTES |= {"U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1}


@dataclass(frozen=True, slots=True)
class RecordFacts:
    """What a record says of the run it is of.

    Args:
        root: directory of the project, asked for its git commit.
    """

    script: str
    arguments: tuple[str, ...]
    ranks: int
    device: str
    fixed_order: bool
    root: Path


@dataclass(frozen=True, slots=True)
class RecordSummary:
    """What was written, for the reader."""

    path: Path
    kind: str
    steps: int
    ranks: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class KeptRecord:
    """A record read back."""

    path: Path
    arm: ArmRecord
    script: str
    ranks: int
    device: str
    fixed_order: bool
    variables: dict[str, str]

    @property
    def words(self) -> str:
        """For the report."""
        return f"the record {self.path} of {self.script} ({self.arm.kind}, torch {self.arm.torch_version})"

    def differences_of_environment(self, other: KeptRecord) -> list[str]:
        """The device, and variables that steer torch, NCCL and CUDA, where they are not the same in both."""
        names = sorted(set(self.variables) | set(other.variables))
        devices = [f"the original ran on {self.device} and the candidate on {other.device}"]
        return (devices if self.device != other.device else []) + [
            f"{name} was {self.variables.get(name, 'not set')} for the original and "
            f"{other.variables.get(name, 'not set')} for the candidate"
            for name in names
            if self.variables.get(name) != other.variables.get(name)
        ]

    def require_like(self, ranks: int, *, fixed_order: bool) -> None:
        """What must be equal for the numbers of equally many ranks to be.

        Raises:
            UsageError: another order of sums.
        """
        if ranks == self.ranks and fixed_order != self.fixed_order:
            raise UsageError(
                f"{self.path}: gradients were {'' if self.fixed_order else 'not '}summed in rank order there",
                hint=f"give --{'' if self.fixed_order else 'no-'}fixed-order",
            )


def recorded(request: VerifyRequest) -> Path | None:
    """The record that a request names as its baseline, if it is one."""
    if request.baseline is None:
        return None
    folder = Path(request.cwd, request.baseline).expanduser()
    return folder if (folder / _MANIFEST).is_file() else None


def refuse_runs_of_record(options: LaunchOptions) -> None:
    """A record is of a run that is over.

    Raises:
        UsageError: what runs the original again was asked for.
    """
    wanted = {"--third-arm": options.third_arm, "--profile": options.profile}
    for option in (name for name, is_wanted in wanted.items() if is_wanted):
        raise UsageError(
            f"{option} runs the original again, and the baseline is a record",
            hint="give the original's program as --baseline: a git revision, a directory or a file",
        )


def require_new(destination: Path) -> None:
    """Nothing is written over.

    Raises:
        UsageError: the directory exists and is not empty.
    """
    if destination.exists() and (not destination.is_dir() or any(destination.iterdir())):
        raise UsageError(
            f"--record {destination}: it exists and is not an empty directory", hint="name a new directory"
        )


def write_record(destination: Path, source: Path, arm: ArmRecord, facts: RecordFacts) -> RecordSummary:
    """Turn the files that the ranks of one arm left into a record.

    Args:
        source: directory with `rank0`, `rank1` ... as the probes write them.
    """
    for folder in sorted(source.glob("rank*")):
        target = destination / folder.name
        target.mkdir(parents=True)
        shutil.copyfile(folder / EVENTS, target / EVENTS)
        _to_safetensors(folder, target / SAFETENSORS)
    manifest = {
        "format": _FORMAT,
        "version": _VERSION,
        "script": facts.script,
        "arguments": list(facts.arguments),
        "ranks": facts.ranks,
        "device": facts.device,
        "fixed_order": facts.fixed_order,
        "steps": arm.last_step,
        "sharding": arm.kind,
        "environment": _environment(arm, facts.root),
    }
    text = json.dumps(manifest, indent=2) + "\n"
    (destination / _MANIFEST).write_text(text, encoding="utf-8")
    size = sum(path.stat().st_size for path in destination.rglob("*") if path.is_file())
    return RecordSummary(destination, arm.kind, arm.last_step, facts.ranks, size)


def _environment(arm: ArmRecord, root: Path) -> dict[str, object]:
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True)
    return {
        "torch": arm.torch_version,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processors": os.cpu_count(),
        "git_commit": commit.stdout.strip() or None,
        "made": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "variables": {
            key: value for key, value in sorted(os.environ.items()) if key.startswith(_KEPT_VARIABLES)
        },
    }


def _to_safetensors(folder: Path, target: Path) -> None:
    """Write a header before the elements; they keep their places behind it."""
    header: dict[str, object] = {"__metadata__": {"format": _FORMAT, "version": str(_VERSION)}}
    with (folder / EVENTS).open(encoding="utf-8") as lines:
        for line in lines:
            event = json.loads(line)
            if event["event"] == "tensors":
                header |= _entries(event)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with (folder / TENSORS).open("rb") as elements, target.open("wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        shutil.copyfileobj(elements, out, 1 << 22)


def _entries(event: dict[str, Any]) -> dict[str, object]:
    dtype = _SAFE.get(event["dtype"], "U8")
    found: dict[str, object] = {}
    for item in event["items"]:
        if "at" in item:
            name, _, numel, *_ = item["slot"]
            end = item["at"] + numel * _BYTES[dtype]
            key = f"step {event['step']}/{event['quantity']}/{name}/{item['at']}"
            found[key] = {"dtype": dtype, "shape": [numel], "data_offsets": [item["at"], end]}
    return found


def read_record(folder: Path) -> KeptRecord:
    """Read a record.

    Raises:
        UsageError: it is none, is damaged, or is of a later version.
    """
    try:
        found = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        if found.get("format") != _FORMAT:
            raise UsageError(f"{folder}: {_MANIFEST} is not that of a record")
        if found["version"] > _VERSION:
            raise UsageError(
                f"{folder}: a record of version {found['version']}, and this program reads {_VERSION}",
                hint="use a later fsdp-migrate",
            )
        arm = read_arm(folder)
        if found["version"] <= _OTHER_SUMS and _has_sums(arm):
            raise UsageError(
                f"{folder}: the digests of a record of version {found['version']} cannot be compared with "
                f"those of version {_VERSION}",
                hint="record again, or with the fsdp-migrate that made it, both records",
            )
        if found["version"] in _STATES_BY_SCHEDULE:
            arm.sparse = _without_states(arm)
        return KeptRecord(
            folder,
            arm,
            found["script"],
            found["ranks"],
            found["device"],
            found["fixed_order"],
            dict(found["environment"]["variables"]),
        )
    except OSError as error:
        raise UsageError(
            f"{folder}: not a record ({error.strerror}: {error.filename})",
            hint="make one: fsdp-migrate verify SCRIPT --record DIR",
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{folder}: a damaged record ({error!r})") from error


def _without_states(arm: ArmRecord) -> set[int]:
    elements = sum(math.prod(shape) for shape in arm.shapes.values())
    return {step for step in arm.steps if not is_due(step, elements, arm.ranks)}


def _has_sums(arm: ArmRecord) -> bool:
    return any(
        part.sums is not None
        for tensors in arm.parts.values()
        for parts in tensors.values()
        for part in parts
    )


def first_steps(arm: ArmRecord, steps: int) -> ArmRecord:
    """The arm as if it had been stopped after `steps`; what it has of a step it did not complete goes too."""
    if max(arm.steps, default=0) <= steps and max((at for at, _ in arm.parts), default=0) <= steps:
        return arm
    arm.steps = {step: facts for step, facts in arm.steps.items() if step <= steps}
    arm.parts = {at: parts for at, parts in arm.parts.items() if at[0] <= steps}
    arm.optimizers = [one for one in arm.optimizers if one.step <= steps]
    arm.saves = [one for one in arm.saves if one.step <= steps]
    arm.saved_numbers = {
        rank: [one for one in files if one[0] <= steps] for rank, files in arm.saved_numbers.items()
    }
    arm.answers = [one for one in arm.answers if one.step <= steps]
    arm.loads = [one for one in arm.loads if one.step <= steps]
    return arm
