"""Files in which each rank saves its own part of sharded tensors, in both arms; pure.

`torch.save(optimizer.state_dict(), f"rank{rank}.pt")` writes flat pieces under FSDP1 (`use_orig_params=True`)
and DTensors under FSDP2. Both are meant to be this rank's part, and their elements are not the same ones: a
rank's piece of FSDP1 is a stretch of a flat parameter, that of FSDP2 a slice of the first dimension. Where
keys come from `named_parameters()`, those of FSDP1 have its wrappers in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from fsdp_migrate.verify.model import SAVED
from fsdp_migrate.verify.record import ArmRecord, Part, Save
from fsdp_migrate.verify.sharding_causes import listed


@dataclass(frozen=True, slots=True)
class _File:
    """What one rank gave to its `number`th `torch.save`, in both arms."""

    rank: int
    number: int
    original: Save
    candidate: Save

    @property
    def new(self) -> set[str]:
        """Tensors that are known to be this rank's part in the candidate, and not in the original."""
        return set(self.candidate.partial) - set(map(_clean, self.original.partial))

    @property
    def left_out(self) -> set[str]:
        """These, and counters beside them of parameters that FSDP1 left this rank nothing of."""
        beside = {name.rpartition(".")[0] for name in self.new}
        more = set(self.candidate.names) - set(map(_clean, self.original.names))
        return self.new | {name for name in more if name.rpartition(".")[0] in beside}

    def part(self, arm: ArmRecord, name: str) -> Part | None:
        """What this rank saved under a name."""
        label = f"file {self.number}, {name}"
        kept = arm.parts.get((self.original.step, SAVED), {})
        found = kept.get(label) or next((parts for key, parts in kept.items() if _clean(key) == label), [])
        return next((part for part in found if part.rank == self.rank), None)


def _clean(name: str) -> str:
    return name.replace("_fsdp_wrapped_module.", "")


def leave_out_own_parts(original: ArmRecord, candidate: ArmRecord) -> list[str]:
    """Take such tensors out of both records, and say so."""
    files = list(_files(original, candidate))
    own = [one for one in files if one.new and _is_of_each_rank(original, one, files)]
    for one in own:
        _leave_out(original, one, one.original.step)
        _leave_out(candidate, one, one.candidate.step)
    names = {step: set[str]() for step in sorted({one.original.step for one in own})}
    for one in own:
        names[one.original.step] |= one.new
    return [
        f"{len(found)} tensors of a file that every rank saves after step {step} are the rank's own part in "
        f"both arms ({listed(sorted(found))}): another part in each, so they are not compared, and each arm "
        "resumes from its own files alone"
        for step, found in names.items()
    ]


def _files(original: ArmRecord, candidate: ArmRecord) -> Iterator[_File]:
    for rank in range(max(original.ranks, 1)):
        left, right = ([one for one in arm.saves if one.rank == rank] for arm in (original, candidate))
        for number, pair in enumerate(zip(left, right, strict=False), 1):
            yield _File(rank, number, *pair)


def _is_of_each_rank(original: ArmRecord, file: _File, files: list[_File]) -> bool:
    """Whether all ranks save such a file, and not the same elements: whole tensors would be."""
    step = file.original.step
    others = [
        one for one in files if one.rank != file.rank and one.original.step == step and one.new & file.new
    ]
    if len({one.rank for one in others}) + 1 < original.ranks:
        return False
    for name in file.new:
        mine = file.part(original, name)
        for part in (one.part(original, name) for one in others):
            if (mine is None) != (part is None):
                return True
            if mine is not None and part is not None and _differ(mine, part):
                return True
    return False


def _differ(one: Part, other: Part) -> bool:
    return one.shape != other.shape or bool(one.sums and other.sums and not one.sums.same(other.sums))


def _leave_out(arm: ArmRecord, file: _File, step: int) -> None:
    names, kept = file.left_out, arm.parts.get((step, SAVED), {})
    labels = {f"file {file.number}, {name}" for name in names}
    for label in [key for key in kept if _clean(key) in labels]:
        kept[label] = [part for part in kept[label] if part.rank != file.rank]
        if not kept[label]:
            del kept[label]
    mine = [at for at, one in enumerate(arm.saves) if one.rank == file.rank]
    at = mine[file.number - 1]
    one = arm.saves[at]
    arm.saves[at] = replace(
        one,
        names=tuple(name for name in one.names if _clean(name) not in names),
        partial=tuple(name for name in one.partial if _clean(name) not in names),
    )
