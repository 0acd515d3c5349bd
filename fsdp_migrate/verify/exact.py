"""`--exact`: no difference is allowed, and what differs by rounding alone is called that; pure."""

from __future__ import annotations

import math

from fsdp_migrate.verify.arms import Circumstances
from fsdp_migrate.verify.compare import Comparison
from fsdp_migrate.verify.model import Cause, Outcome
from fsdp_migrate.verify.noise import entry_limit, growing_limit, rounding_source
from fsdp_migrate.verify.record import ArmRecord
from fsdp_migrate.verify.verdict import judge

NORMS = "norms that gradients are clipped by are added up in float64"


def order_words(run: Circumstances, original: ArmRecord, candidate: ArmRecord) -> str:
    """What makes sums equal, for the head of the report."""
    fixed = run.fixed_order and original.ranks == candidate.ranks
    words = ["gradients summed in rank order in both arms"] if fixed else []
    return "; ".join(words + [f"exact: no difference is allowed; {NORMS}"] * run.exact)


def of_rounding(
    run: Circumstances, original: ArmRecord, candidate: ArmRecord, comparison: Comparison
) -> tuple[Cause, ...]:
    """What `--exact` fails for and nothing else would."""
    otherwise = judge(original, candidate, comparison.judged(lambda *_: math.inf), "").checks
    why = _only_rounding(run, original, candidate, comparison)
    if not why or any(check.outcome is Outcome.DIFFERS for check in otherwise):
        return ()
    return (
        Cause(
            "rounding",
            f"bits differ, by no more than rounding explains ({why}), and --exact allows no difference",
            "without --exact such differences are judged by measured noise",
        ),
    )


def _only_rounding(run: Circumstances, original: ArmRecord, candidate: ArmRecord, found: Comparison) -> str:
    """Why all that differs may be rounding, one clause; "" where it is more, or nothing."""
    source = rounding_source(original, candidate, fixed_order=run.fixed_order)
    first = found.first
    if first is None or found.judged(entry_limit(source)).differences[0].fails:
        return ""
    judged = found.judged(growing_limit(source, max(1, first.step)))
    return "" if any(one.fails for one in judged.differences) else source.reason
