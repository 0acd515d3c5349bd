"""What every form of the parity report says, as rows of words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsdp_migrate.verify.model import Outcome

if TYPE_CHECKING:
    from fsdp_migrate.verify.model import ArmSummary, Check, Difference, ParityReport

_MIB = 1 << 20


def headline(report: ParityReport) -> str:
    """The verdict in one line."""
    if report.passed:
        return f"PASS  parity holds: {report.subject} does under FSDP2 what it did before"
    return f"FAIL  parity does not hold: {report.subject}"


def setting(report: ParityReport) -> str:
    """Under what the verdict was reached."""
    processes = f"{report.nproc} process{'es' * (report.nproc != 1)}"
    return (
        f"{report.steps} steps, {processes}, {report.device}, torch {report.torch_version}; "
        f"original: {report.baseline}" + (f"; {report.reduction}" if report.reduction else "")
    )


def check_words(check: Check) -> str:
    """What a check found, with its tolerance and where that comes from."""
    counted = f"{check.compared} compared" if check.compared else ""
    match check.outcome:
        case Outcome.EQUAL:
            words = "equal to the last bit" if check.numbers else "equal"
        case Outcome.WITHIN:
            words = f"largest relative difference {check.largest_relative:.1e}, allowed {check.tolerance:.1e}"
        case Outcome.DIFFERS:
            counted, words = "", check.detail
            if check.largest_relative:
                words += (
                    f"; largest relative difference {check.largest_relative:.1e}, "
                    f"allowed where it begins {check.tolerance:.1e}"
                )
        case Outcome.NOT_OBSERVED:
            return check.detail or "nothing to compare"
    detail = check.detail if check.outcome is Outcome.EQUAL else ""
    return "; ".join(part for part in (counted, words, detail) if part)


def difference_words(one: Difference) -> str:
    """A difference in one sentence."""
    where = f"[{', '.join(map(str, one.index))}]" if one.index else ""
    return (
        f"step {one.step}, {one.quantity} of {one.name}{where}: {one.original:.9g} in the original, "
        f"{one.candidate:.9g} in the candidate (relative difference of the whole {one.relative:.1e}, "
        f"allowed {one.limit:.1e})"
    )


def first_words(report: ParityReport) -> str:
    """What differs first: a number, or where none does the first check that fails; "" when all is equal."""
    if report.first is not None:
        return difference_words(report.first)
    failing = (check for check in report.checks if check.outcome is Outcome.DIFFERS)
    return next((f"{check.title}: {check_words(check)}" for check in failing), "")


def origins(report: ParityReport) -> list[str]:
    """Where tolerances come from, each once."""
    return list(dict.fromkeys(check.origin for check in report.checks if check.origin))


def arm_rows(report: ParityReport) -> list[tuple[str, str, str]]:
    """Figures of both arms beside each other."""
    arms = (report.original, report.candidate)
    rows = [
        ("sharding", *(f"{arm.kind}, {len(arm.units)} unit{'s' * (len(arm.units) != 1)}" for arm in arms)),
        ("parameters", *(f"{arm.parameters} ({arm.numel:,} elements)" for arm in arms)),
        ("step time (median)", *(_seconds(arm.step_seconds) for arm in arms)),
        (f"peak {arms[0].peak_is}", *(f"{arm.peak_bytes / _MIB:,.0f} MiB" for arm in arms)),
        ("probes' own time per step", *(_seconds(arm.probe_seconds) for arm in arms)),
        ("collectives in the last step", *(_collectives(arm) for arm in arms)),
    ]
    return [(title, left, right) for title, left, right in rows]


def loss_rows(report: ParityReport) -> list[tuple[str, str, str]]:
    """Loss and gradient norm, step by step, to full precision.

    The loss is what `backward` was called on, a scaled one too: the mean over ranks and micro-batches.
    """
    rows = []
    left, right = report.original, report.candidate
    for step in range(report.steps):
        rows.append(
            (f"loss at backward, step {step + 1}", f"{left.losses[step]:.9g}", f"{right.losses[step]:.9g}")
        )
    for step, (a, b) in enumerate(zip(left.gradient_norms, right.gradient_norms, strict=False)):
        rows.append((f"gradient norm, step {step + 1}", f"{a:.9g}", f"{b:.9g}"))
    return rows


def _seconds(seconds: float | None) -> str:
    return "not measured" if seconds is None else f"{seconds * 1e3:.1f} ms"


def _collectives(arm: ArmSummary) -> str:
    return ", ".join(f"{count} {name}" for name, count in arm.collectives) or "none"
