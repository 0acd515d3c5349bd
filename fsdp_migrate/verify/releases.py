"""What releases of torch can do, and what they name otherwise though it is the same. Needs no torch.

A record of an older release is compared with a job of a newer one: what torch itself has given another name
in between, or a name at all, is no difference of the programs.
"""

from __future__ import annotations

import re
from dataclasses import replace
from importlib import metadata

from fsdp_migrate.errors import UsageError
from fsdp_migrate.verify.record import ArmRecord, OptimizerFacts

OLDEST = (2, 1)
"""The oldest release whose FSDP1 jobs are recorded."""
FSDP2 = (2, 6)
"""The oldest release with FSDP2 under its public name."""
FSDP2_ON_CPU = (2, 7)
"""The oldest release whose FSDP2 runs on a CPU; before it, torch has no streams there."""
GLOO_AVERAGES = (2, 9)
"""The oldest release whose gloo averages; see `older_gloo`."""


def release(version: str) -> tuple[int, int]:
    """Major and minor number of a version of torch; (0, 0) where it names none."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def installed_torch() -> str:
    """The version of the torch that ranks will import; "" where none is known."""
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return ""


def require(least: tuple[int, int], what: str, hint: str) -> None:
    """Refuse an older torch, before anything is started.

    Args:
        what: needs it.

    Raises:
        UsageError: the torch that is installed is older.
    """
    version = installed_torch()
    if version and (0, 0) < release(version) < least:
        raise UsageError(
            f"{what} needs torch {least[0]}.{least[1]} or later, and this is {version}", hint=hint
        )


def require_fsdp2(device: str, what: str) -> None:
    """Refuse a torch whose FSDP2 does not run there.

    Args:
        device: "cuda" or "cpu".

    Raises:
        UsageError: the torch that is installed is older.
    """
    hint = "record the original with this torch (verify SCRIPT --record DIR), and compare with a newer one"
    require(FSDP2_ON_CPU if device == "cpu" else FSDP2, f"{what} on {device}", hint)


Setting = tuple[str, object]
_NAMED_SINCE: dict[str, dict[str, object]] = {
    "decoupled_weight_decay": {"AdamW": True, "Adam": False},  # 2.7; `torch/optim/adam.py`
    "maximize": {},  # `torch/optim`: NAdam, RAdam, ASGD ... got it one after the other
}
"""Settings that torch's optimizers have had a word for since some release: what each optimizer did before."""
_BEFORE: dict[str, object] = {"decoupled_weight_decay": None, "maximize": False}
"""The same for optimizers that are not named; `None` is whatever the other arm says."""


def named_alike(original: ArmRecord, candidate: ArmRecord) -> tuple[ArmRecord, ArmRecord]:
    """Both arms with the optimizer settings that the release of one alone has a word for."""
    pairs = list(zip(original.optimizers, candidate.optimizers, strict=False))
    left = [_completed(one, other) for one, other in pairs] + original.optimizers[len(pairs) :]
    right = [_completed(one, other) for other, one in pairs] + candidate.optimizers[len(pairs) :]
    return replace(original, optimizers=left), replace(candidate, optimizers=right)


def _completed(facts: OptimizerFacts, other: OptimizerFacts) -> OptimizerFacts:
    settings = {
        name: _with_words(facts.kind, values, dict(other.settings.get(name, ())))
        for name, values in facts.settings.items()
    }
    return replace(facts, settings=settings)


def _with_words(kind: str, values: tuple[Setting, ...], others: dict[str, object]) -> tuple[Setting, ...]:
    known = dict(values)
    for key, kinds in _NAMED_SINCE.items():
        if key in others and key not in known:
            before = kinds.get(kind, _BEFORE[key])
            known[key] = others[key] if before is None else before
    return tuple(sorted(known.items()))
