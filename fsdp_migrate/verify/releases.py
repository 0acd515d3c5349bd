"""What releases of torch name otherwise though it is the same; pure.

A record of an older release is compared with a job of a newer one: what torch itself has given another name
in between, or a name at all, is no difference of the programs.
"""

from __future__ import annotations

from dataclasses import replace

from fsdp_migrate.verify.record import ArmRecord, OptimizerFacts

Setting = tuple[str, object]
_NAMED_SINCE: dict[str, dict[str, object]] = {
    "decoupled_weight_decay": {"AdamW": True, "Adam": False},  # 2.8; `torch/optim/adam.py`
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
