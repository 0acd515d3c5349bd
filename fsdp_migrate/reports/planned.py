"""A plan as text for a terminal, JSON for programs, Markdown for a pull request."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from pathlib import Path

from fsdp_migrate import console
from fsdp_migrate.planner.alternatives import settings_in_words
from fsdp_migrate.planner.model import Alternative, Arm, ArmMemory, ArmRefused, Category, Plan, fits
from fsdp_migrate.reports import output_file
from fsdp_migrate.reports.conversion import human_bytes
from fsdp_migrate.reports.parity import plain

Rows = list[list[str]]

NOT_COUNTED = (
    "Not in these numbers: the CUDA context, NCCL's buffers, workspaces of cuBLAS and cuDNN, rounding and "
    "fragmentation of the caching allocator, and memory that waits for another stream."
)
_TITLES = {
    Category.PARAMETERS: "parameters (shards)",
    Category.BUFFERS: "buffers",
    Category.GRADIENTS: "gradients (shards)",
    Category.OPTIMIZER: "optimizer state",
    Category.GATHERED: "gathered units",
    Category.REDUCED: "gradient reduction",
    Category.INPUTS: "inputs",
    Category.ACTIVATIONS: "activations",
    Category.TEMPORARY: "temporary",
}


def show(plan: Plan, form: str, output: Path | None) -> None:
    """Write it to stdout, or to `output`.

    Args:
        form: "text", "json" or "md".
    """
    text = render(plan, form)
    if output is None:
        console.results().print(text, markup=False, highlight=False, soft_wrap=True)
    else:
        output_file.save(output, text + "\n")


def render(plan: Plan, form: str) -> str:
    """The plan in one of its forms."""
    if form == "json":
        return json.dumps(_record(plan), indent=2, ensure_ascii=False)
    as_markdown = form == "md"
    blocks = ["\n".join(_head(plan)), _table(_memory(plan), as_markdown), _table(_peaks(plan), as_markdown)]
    if plan.alternatives:
        blocks.append(_table(_alternatives(plan), as_markdown))
    blocks.append("\n".join(_verdicts(plan)))
    notes = _notes(plan)
    blocks.append("\n\n".join(notes) if as_markdown else "\n".join(map(_wrapped, notes)))
    return "\n\n".join(block for block in blocks if block)


def too_large(plan: Plan) -> bool:
    """Whether a GPU is named that FSDP2 does not fit, or FSDP1 where FSDP2 did not run."""
    ran = [arm for arm in plan.arms if isinstance(arm, ArmMemory)]
    return plan.gpu is not None and not fits(ran[-1], plan.gpu)


def _record(plan: Plan) -> dict[str, object]:
    found = plain(plan)
    assert isinstance(found, dict)
    found["arms"] = [_arm_record(arm, plan) for arm in plan.arms]
    found["alternatives"] = [_alternative_record(one, plan) for one in plan.alternatives]
    found["chosen"] = None if plan.chosen is None else plan.alternatives.index(plan.chosen)
    return {"version": 1, **found, "not_counted": NOT_COUNTED}


def _alternative_record(one: Alternative, plan: Plan) -> dict[str, object]:
    return {"settings": plain(one.settings), "batch": one.batch, "arm": _arm_record(one.arm, plan)}


def _arm_record(arm: Arm, plan: Plan) -> dict[str, object]:
    verdict = None if plan.gpu is None else fits(arm, plan.gpu)
    if isinstance(arm, ArmRefused):
        return {"name": arm.name, "refused": arm.reason}
    found = plain(arm)
    assert isinstance(found, dict)
    return {**found, "fits": verdict}


def _head(plan: Plan) -> list[str]:
    job, facts, settings = plan.job, plan.facts, plan.job.settings
    trained = "" if facts.trainable == facts.parameters else f", {facts.trainable:,} trained"
    units = f"{len(facts.units)} units and the root" if facts.units else "one unit"
    stored, computed = settings.dtype or "as built", settings.param_dtype or "as stored"
    reduced = settings.reduce_dtype or settings.param_dtype or "as stored"
    called = f"batch {job.inputs.batch} x {job.inputs.sequence}" if job.inputs.batch else job.inputs.function
    return [
        f"{job.model}: {facts.parameters:,} parameters{trained}; {units}",
        f"{settings.world} ranks: {settings_in_words(settings)}; {settings.optimizer}",
        f"parameters {stored}, gathered {computed}, reduced {reduced}",
        called or "not called: activations are not known",
    ]


def _memory(plan: Plan) -> Rows:
    """What is held per GPU, an arm per column."""
    arms = [arm for arm in plan.arms if isinstance(arm, ArmMemory)]
    rows = [["per GPU", *(arm.name for arm in arms)]]
    if any(arm.rank for arm in arms):
        rows.append(["rank that holds most", *(str(arm.rank) for arm in arms)])
    for category in (Category.PARAMETERS, Category.BUFFERS, Category.GRADIENTS, Category.OPTIMIZER):
        rows.append([_TITLES[category], *(human_bytes(getattr(arm, category.value)) for arm in arms)])
    for category in (Category.GATHERED, Category.REDUCED):
        title = f"{_TITLES[category]}, at most"
        rows.append([title, *(human_bytes(getattr(arm, category.value)) for arm in arms)])
    known = [None if arm.activations is None else human_bytes(arm.activations) for arm in arms]
    rows.append(["activations, at most", *(cell or "not known" for cell in known)])
    return rows


def _peaks(plan: Plan) -> Rows:
    """What each peak consists of."""
    arms = [arm for arm in plan.arms if isinstance(arm, ArmMemory)]
    title = "peak" if plan.job.inputs.are_known else "peak without activations"
    rows = [[title, *(human_bytes(arm.peak.size_bytes) for arm in arms)]]
    rows.append(["  in", *(arm.peak.phase.value for arm in arms)])
    rows.append(["  at", *(arm.peak.unit or "outside units" for arm in arms)])
    for category, text in _TITLES.items():
        sizes = [arm.peak.parts.get(category, 0) for arm in arms]
        if any(sizes):
            rows.append([f"  {text}", *map(human_bytes, sizes)])
    return rows


def _alternatives(plan: Plan) -> Rows:
    rows = [["under FSDP2", "batch", "peak", *(["fits"] if plan.gpu else [])]]
    for one in plan.alternatives:
        ran = isinstance(one.arm, ArmMemory)
        size = human_bytes(one.arm.peak.size_bytes) if isinstance(one.arm, ArmMemory) else "did not run"
        row = [settings_in_words(one.settings), str(one.batch or ""), size]
        if plan.gpu is not None:
            row.append(("yes" if fits(one.arm, plan.gpu) else "no") if ran else "")
        rows.append(row)
    return rows


def _verdicts(plan: Plan) -> list[str]:
    if plan.gpu is None:
        return []
    card = f"{plan.gpu.name or 'the GPU'} ({human_bytes(plan.gpu.memory)})"
    lines = []
    for arm in plan.arms:
        if isinstance(arm, ArmRefused):
            continue
        left = plan.gpu.memory - arm.peak.size_bytes
        if left < 0:
            lines.append(f"{arm.name} does not fit {card}: {human_bytes(-left)} over")
        elif arm.activations is None:
            lines.append(f"{arm.name}: {human_bytes(left)} of {card} are left for activations")
        else:
            lines.append(f"{arm.name} fits {card}: {human_bytes(left)} left for what is not counted")
    if plan.chosen is not None:
        batch = f", batch {plan.chosen.batch}" if plan.chosen.batch else ""
        lines.append(f"take: {settings_in_words(plan.chosen.settings)}{batch}")
    elif plan.alternatives and plan.job.inputs.are_known:
        lines.append("take: none of these fits; more GPUs, a shorter sequence, smaller units, or offloading")
    return lines


def _notes(plan: Plan) -> list[str]:
    lines = [f"{arm.name} did not run: {arm.reason}" for arm in plan.arms if isinstance(arm, ArmRefused)]
    lines += [f"{note[:1].upper()}{note[1:]}." for note in plan.notes]
    if not plan.facts.units:
        name = f": --wrap {plan.facts.advice}" if plan.facts.advice else ""
        lines.append(f"The model is gathered as a whole, since no units are named{name}.")
    if not plan.job.inputs.are_known:
        lines.append("With --batch and --sequence, or --inputs, activations are measured too.")
    lines.append(f"{NOT_COUNTED} Measured with torch {plan.torch_version}, second step, 1 GiB = 2^30 bytes.")
    return lines


def _wrapped(note: str) -> str:
    """In at most 80 columns; lines of code that a note quotes stay as they are."""
    first, newline, rest = note.partition("\n")
    return textwrap.fill(first, 80, break_long_words=False, break_on_hyphens=False) + newline + rest


def _table(rows: Sequence[Sequence[str]], as_markdown: bool) -> str:
    if as_markdown:
        cells = [[cell.strip().replace("|", "\\|") for cell in row] for row in rows]
        lines = [f"| {' | '.join(row)} |" for row in cells]
        lines.insert(1, f"|---{'|---:' * (len(rows[0]) - 1)}|")
        return "\n".join(lines)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    )
