"""What a job of this kind should know of its version of torch, where the record shows that it applies; pure.

Versions are those in which torch's own source changed (`torch/distributed/fsdp/_fully_shard`): found by
reading the releases 2.4, 2.6, 2.9, 2.13 and 2.15, so that a change between two of them is taken to be as old
as the later one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fsdp_migrate.verify.compare import Comparison
from fsdp_migrate.verify.record import ArmRecord

Version = tuple[int, int]
_TIED_ARE_CHECKED: Version = (2, 13)
_UNUSED_ARE_REDUCED: Version = (2, 13)


@dataclass(frozen=True, slots=True)
class _Advice:
    """One sentence, and when it is said.

    Args:
        below: versions of torch that it is of; `None` for all.
    """

    below: Version | None
    applies: Callable[[ArmRecord, ArmRecord, Comparison], bool]
    text: str


def advisories(original: ArmRecord, candidate: ArmRecord, comparison: Comparison) -> Iterator[str]:
    """Each sentence that applies to the candidate."""
    version = version_of(candidate.torch_version)
    if "FSDP2" not in candidate.kind or version is None:
        return
    for each in _ADVICE:
        if (each.below is None or version < each.below) and each.applies(original, candidate, comparison):
            yield each.text.format(version=candidate.torch_version)


def version_of(words: str) -> Version | None:
    """Major and minor number; `None` where the words are no version."""
    found = re.match(r"(\d+)\.(\d+)", words)
    return (int(found[1]), int(found[2])) if found else None


def _has_tied(_original: ArmRecord, candidate: ArmRecord, _comparison: Comparison) -> bool:
    return bool(candidate.tied)


def _has_even_tied(original: ArmRecord, candidate: ArmRecord, _comparison: Comparison) -> bool:
    """Tied weights whose rows the ranks share evenly here, though they need not do so elsewhere."""
    shards = max((unit.shards for unit in candidate.units), default=0)
    names = {name for group in candidate.tied for name in group}
    shapes = [shape for name, shape in candidate.shapes.items() if name in names and shape]
    return shards > 1 and bool(shapes) and all(shape[0] % shards == 0 for shape in shapes)


def _has_unused(_original: ArmRecord, _candidate: ArmRecord, comparison: Comparison) -> bool:
    return bool(comparison.unused)


_ADVICE = (
    _Advice(
        _TIED_ARE_CHECKED,
        _has_tied,
        "torch {version} does not notice tied weights in separate units, which are then untied (from 2.13 "
        "on it refuses them): keep them in one unit",
    ),
    _Advice(
        _TIED_ARE_CHECKED,
        _has_even_tied,
        "rows of a tied weight that do not divide evenly were not all updated by versions before 2.13 "
        "(pytorch#176076), and here they divide: verify with an odd --nproc too",
    ),
    _Advice(
        _UNUSED_ARE_REDUCED,
        _has_unused,
        "parameters that a step does not use have gradients of zero under FSDP1, which weight decay acts "
        "on, and none under FSDP2; torch {version} has no set_reduce_scatter_unused_params (2.13 has)",
    ),
)
