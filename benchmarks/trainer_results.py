"""What a run of a trainer left, and what of it is not the same in another run."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save


class RunFailed(Exception):
    """A rank died or hung; the text is the end of what it said."""


@dataclass(frozen=True, slots=True)
class Arm:
    """What one run left: losses by rank in hexadecimal, and the contents of saved files by name."""

    losses: list[list[str]]
    steps: int
    moved: int
    substitutions: list[str]
    saved: dict[str, dict[str, Any]]
    seconds: float


def contents(path: Path) -> dict[str, Any]:
    """Leaves of a file of torch.save or of a DCP directory, by dotted name.

    Raises:
        RunFailed: the trainer did not write it.
    """
    if not path.exists():
        raise RunFailed(f"{path.name} was not written")
    if path.is_dir():
        with tempfile.TemporaryDirectory() as folder:
            whole = Path(folder) / "whole.pt"
            dcp_to_torch_save(path, whole)
            return dict(_leaves(torch.load(whole, weights_only=False), ""))
    return dict(_leaves(torch.load(path, weights_only=False), ""))


def _leaves(value: Any, name: str) -> list[tuple[str, Any]]:
    """Values by dotted name; a parameter group is a set of names, whatever the order they are listed in."""
    if name.endswith(".params") and isinstance(value, list) and all(isinstance(v, str) for v in value):
        return [(name.lstrip("."), sorted(value))]
    if isinstance(value, dict):
        return [leaf for key, each in value.items() for leaf in _leaves(each, f"{name}.{key}")]
    if isinstance(value, (list, tuple)):
        return [leaf for number, each in enumerate(value) for leaf in _leaves(each, f"{name}[{number}]")]
    return [(name.lstrip("."), value)]


def differences(before: Arm, after: Arm, tolerance: float, saved_tolerance: float) -> list[str]:
    """What is not the same, a line each."""
    found = []
    for rank, (one, other) in enumerate(zip(before.losses, after.losses, strict=True)):
        if len(one) != len(other):
            found.append(f"rank {rank}: {len(one)} losses before, {len(other)} after")
        found += [
            f"rank {rank}, loss {number}: {a!r} before, {b!r} after"
            for number, (a, b) in enumerate(
                zip(map(float.fromhex, one), map(float.fromhex, other), strict=False)
            )
            if not abs(a - b) <= tolerance * abs(a)
        ]
    for file, leaves in before.saved.items():
        others = after.saved[file]
        found += [
            f"{file}: {name} is {what}" for name, what in _other_leaves(leaves, others, saved_tolerance)
        ]
    return found


def _other_leaves(before: dict[str, Any], after: dict[str, Any], tolerance: float) -> list[tuple[str, str]]:
    found = [(name, "missing after") for name in before.keys() - after.keys()]
    found += [(name, "new after") for name in after.keys() - before.keys()]
    for name in sorted(before.keys() & after.keys()):
        one, other = before[name], after[name]
        if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
            if one.dtype != other.dtype or one.shape != other.shape:
                found.append(
                    (name, f"{one.dtype} {tuple(one.shape)}, {other.dtype} {tuple(other.shape)} after")
                )
            elif not torch.equal(one, other):
                by = (one.double() - other.double()).abs().max().item()
                if not by <= tolerance * one.double().abs().max().item():
                    found.append((name, f"different by up to {by:.3g}"))
        elif type(one) is not type(other) or one != other:
            found.append((name, f"{one!r} before, {other!r} after"))
    return sorted(found)
