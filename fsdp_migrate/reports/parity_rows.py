"""What every form of the parity report says, as rows of words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsdp_migrate.reports.visible import visible
from fsdp_migrate.verify.model import CLIPPED, ArmName, Outcome

if TYPE_CHECKING:
    from fsdp_migrate.verify.model import ArmPerformance, ArmSummary, Check, Difference, ParityReport

_MIB = 1 << 20
_PEAKS = {
    "GPU memory allocated": "peak GPU memory",
    "resident memory of the process": "peak resident memory",
}


def headline(report: ParityReport) -> str:
    """The verdict in one line."""
    if report.passed:
        under = "under FSDP2 " if "FSDP2" in report.candidate.kind else ""
        return f"PASS  parity holds: {report.subject} does {under}what it did before"
    if report.died:
        return f"FAIL  {_before_it_died(report)}: {report.subject}"
    return f"FAIL  parity does not hold: {report.subject}"


def _before_it_died(report: ParityReport) -> str:
    """How far the arms agree, and which of them died where."""
    ends = " and ".join(f"the {one.arm.value} died {one.where}" for one in report.died)
    steps = f"first {report.steps} steps" if report.steps > 1 else "first step"
    if report.agrees:
        return f"the {steps} agree{'s' * (report.steps == 1)}; {ends}"
    if report.first is None:
        return f"the arms do not agree in the {steps}, before {ends}"
    begin = f"step {report.first.step} on" if report.first.step else "the start"
    return f"the arms differ from {begin}, before {ends}"


def setting(report: ParityReport) -> str:
    """Under what the verdict was reached."""
    processes = f"{report.nproc} process{'es' * (report.nproc != 1)}"
    return (
        f"{report.steps} step{'s' * (report.steps != 1)}, {processes}, {report.device}, "
        f"torch {report.torch_version}; original: {report.baseline}"
        + (f"; {report.reduction}" if report.reduction else "")
    )


def check_words(check: Check) -> str:
    """What a check found, with its tolerance and where that comes from."""
    counted = f"{check.compared} compared" if check.compared else ""
    match check.outcome:
        case Outcome.EQUAL:
            words = "equal to the last bit" if check.numbers else "equal"
        case Outcome.WITHIN:
            words = f"within {check.largest_relative:.1e}, {check.tolerance:.1e} allowed"
        case Outcome.DIFFERS:
            counted, words = "", check.detail
            if check.largest_relative:
                words += (
                    f"; apart by up to {check.largest_relative:.1e}, "
                    f"{check.tolerance:.1e} allowed where it begins"
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


def ends(report: ParityReport) -> list[tuple[str, str, str]]:
    """What ended arms before their time: title, what was said, what to do.

    A job's words may hold escape sequences, which are named.
    """
    return [
        (f"What ended the {one.arm.value}", "\n".join(map(visible, one.message.split("\n"))), one.hint)
        for one in report.died
    ]


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
        (_PEAKS.get(arms[0].peak_is or arms[1].peak_is, "peak memory"), *(_peak(arm) for arm in arms)),
        ("probes' time per step", *(_seconds(arm.probe_seconds) for arm in arms)),
        ("collectives, last step", *(_collectives(arm) for arm in arms)),
    ]
    return [(title, left, right) for title, left, right in rows]


def loss_rows(report: ParityReport) -> list[tuple[str, str, str]]:
    """Loss and gradient norm, step by step, to full precision.

    The loss is what `backward` was called on, a scaled one too: the mean over ranks and micro-batches.
    """
    rows = []
    left, right = report.original, report.candidate
    for step in range(report.steps):
        rows.append((f"loss, step {step + 1}", f"{left.losses[step]:.9g}", f"{right.losses[step]:.9g}"))
    for step, (a, b) in enumerate(zip(left.gradient_norms, right.gradient_norms, strict=False)):
        rows.append((f"gradient norm, step {step + 1}", f"{a:.9g}", f"{b:.9g}"))
    return rows


def _seconds(seconds: float | None) -> str:
    return "not measured" if seconds is None else f"{seconds * 1e3:.1f} ms"


def _peak(arm: ArmSummary) -> str:
    """It is written down when an arm comes to its end."""
    return f"{arm.peak_bytes / _MIB:,.0f} MiB" if arm.peak_is else "not measured"


def _collectives(arm: ArmSummary) -> str:
    return ", ".join(f"{count} {name}" for name, count in arm.collectives) or "none"


def quantity_words(quantity: str) -> str:
    """A quantity in few letters, for a column."""
    if quantity == CLIPPED:
        return "clipped gradient"
    return quantity.removeprefix("optimizer state ")


def performance_header(report: ParityReport) -> tuple[str, ...]:
    """Names of the arms that were measured."""
    return ("", *(arm.name.value for arm in report.performance))


def performance_rows(report: ParityReport) -> list[tuple[str, ...]]:
    """Speed and memory of the arms beside each other; what does not apply says so."""
    arms = report.performance
    no_gpu = "does not apply: no GPU"
    rows: list[tuple[str, ...]] = [
        ("step time, median", *(_seconds(arm.step_seconds) for arm in arms)),
        ("  quartiles apart by", *(_seconds(arm.spread_seconds) for arm in arms)),
        ("steps counted", *(str(arm.steps) for arm in arms)),
        ("tokens/s per rank", *(_or(arm.tokens_per_second, "{:,.0f}", "no token ids") for arm in arms)),
        ("exposed communication", *(_seconds_or(arm.exposed_seconds, no_gpu) for arm in arms)),
        ("overlap", *(_or(arm.overlap_percent, "{:.1f} %", no_gpu) for arm in arms)),
        ("MFU", *(_mfu(arm) for arm in arms)),
        ("FLOP per token", *(_or(arm.flop_per_token, "{:.3g}", "no model seen") for arm in arms)),
    ]
    for phase in dict.fromkeys(phase for arm in arms for phase, _, _ in arm.memory):
        rows.append((f"peak memory, {phase}", *(_phase(arm, phase) for arm in arms)))
    if not any(arm.memory for arm in arms):
        rows.append(("peak memory by phase", *(no_gpu for _ in arms)))
    for name in dict.fromkeys(name for arm in arms for name, _, _ in arm.collectives):
        rows.append((name, *(_calls(arm, name) for arm in arms)))
    return rows


MFU_FORMULA = (
    "MFU = tokens/s per rank x FLOP per token / bf16 dense peak of the chip; FLOP per token = 6 (N - "
    "N_embedding) + 12 x layers x width x sequence"
)


def _or(value: float | None, form: str, otherwise: str) -> str:
    return otherwise if value is None else form.format(value)


def _seconds_or(value: float | None, otherwise: str) -> str:
    return otherwise if value is None else _seconds(value)


def _mfu(arm: ArmPerformance) -> str:
    if arm.mfu_percent is not None:
        return f"{arm.mfu_percent:.1f} % of {arm.chip}"
    return f"no peak known for {arm.chip}" if arm.chip else "does not apply: no GPU"


def _phase(arm: ArmPerformance, wanted: str) -> str:
    for phase, allocated, reserved in arm.memory:
        if phase == wanted:
            return f"{allocated / _MIB:,.0f} MiB, {reserved / _MIB:,.0f} reserved"
    return "none"


def _calls(arm: ArmPerformance, wanted: str) -> str:
    for name, calls, size in arm.collectives:
        if name == wanted:
            return f"{calls} a step, {size / _MIB:,.2f} MiB"
    return "not seen: made in C++" if arm.name is ArmName.DDP else "none"
