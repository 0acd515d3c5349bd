"""Verdicts on records made by hand: what must not pass, whatever runs would show. No process is started."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from fsdp_migrate.errors import UsageError
from fsdp_migrate.verify.arms import Circumstances
from fsdp_migrate.verify.model import Outcome, ParityReport
from fsdp_migrate.verify.noise import require_same_kernels
from fsdp_migrate.verify.record import ArmRecord, Clip, Part, StepFacts, Unit
from fsdp_migrate.verify.run import report

STEPS = 12
SHAPE = (4, 4)


def part(name: str, value: float, rank: int = 0) -> Part:
    """A tensor of one value that this rank holds entirely."""
    numel = math.prod(SHAPE)
    stored = np.full(numel, value, np.float32)
    return Part(rank, name, "float32", SHAPE, numel, 0, None, stored, None)


def arm(kind: str, ranks: int = 1) -> ArmRecord:
    """A job of one parameter that its optimizer makes larger by 1 with each step."""
    made = ArmRecord(ranks=ranks, torch_version="2", kind=kind)
    made.shapes, made.trainable, made.sharded = {"w": SHAPE}, {"w": True}, {"w": True}
    for step in range(STEPS + 1):
        made.parts[step, "weight"] = {"w": [part("w", 1.0 + step, rank) for rank in range(ranks)]}
        if step:
            facts = StepFacts(step, (1.0 / step,), (1,), ("float32",), (f"data {step}",), (), {}, 0.1, 0.0)
            made.steps[step] = [facts] * ranks
            made.parts[step, "gradient"] = {"w": [part("w", 0.5, rank) for rank in range(ranks)]}
    return made


def verdict(original: ArmRecord, candidate: ArmRecord) -> ParityReport:
    under = Circumstances(original.ranks, "cpu", False, True, None, lambda _: None)
    return report(under, original, candidate, None, subject="job", baseline="record")


def outcome(found: ParityReport, title: str) -> Outcome:
    return next(check.outcome for check in found.checks if check.title == title)


def test_equal_arms_pass() -> None:
    found = verdict(arm("FSDP1"), arm("FSDP2"))
    assert found.passed and not found.warnings and found.largest == ()


@pytest.mark.parametrize("step", range(1, STEPS + 1))
def test_mistake_that_begins_late_is_no_rounding(step: int) -> None:
    """Steps before it are equal to the last bit, so that nothing can have grown into it."""
    candidate = arm("FSDP2")
    candidate.parts[step, "weight"]["w"] = [part("w", (1.0 + step) * 1.01)]
    found = verdict(arm("FSDP1"), candidate)
    assert outcome(found, "Weights after each step") is Outcome.DIFFERS
    assert found.first is not None and found.first.step == step


@pytest.mark.parametrize(("loss", "said"), [("0.500025", True), ("0.500005", False)])
def test_printed_losses_are_held_to_the_losses_that_are_equal(loss: str, said: bool) -> None:
    """Whatever the tensors may round: no loss differs."""
    original, candidate = arm("FSDP1"), arm("FSDP2")
    original.printed, candidate.printed = ("step 3 loss 0.500000",), (f"step 3 loss {loss}",)
    candidate.parts[1, "weight"]["w"] = [part("w", 2.0000005)]
    found = verdict(original, candidate)
    assert found.passed
    assert any("prints or writes other numbers" in text for text in found.warnings) == said


def test_exact_fails_for_the_last_bit() -> None:
    candidate = arm("FSDP2")
    candidate.parts[1, "weight"]["w"] = [part("w", 2.0000005)]
    under = Circumstances(1, "cpu", False, True, None, lambda _: None, exact=True)
    for made, passed in ((arm("FSDP2"), True), (candidate, False)):
        found = report(under, arm("FSDP1"), made, None, subject="job", baseline="record")
        assert (found.passed, found.exact, not found.causes) == (passed, True, passed)
    assert found.causes[0].code == "rounding"
    candidate.parts[1, "weight"]["w"] = [part("w", 2.5)]
    found = report(under, arm("FSDP1"), candidate, None, subject="job", baseline="record")
    assert (found.passed, found.causes[0].code) == (False, "where-to-look")
    candidate.torch_version = "3"
    with pytest.raises(UsageError, match="--exact asks for equal bits, and torch 2 and torch 3"):
        require_same_kernels(arm("FSDP1"), candidate)


def test_growth_that_is_not_measured_has_an_end() -> None:
    candidate = arm("FSDP2")
    candidate.parts[1, "weight"]["w"] = [part("w", 2.0000005)]
    assert verdict(arm("FSDP1"), candidate).passed
    candidate.parts[STEPS, "weight"]["w"] = [part("w", 3 * (1.0 + STEPS))]
    assert not verdict(arm("FSDP1"), candidate).passed


def test_gradient_that_is_lost_after_a_step_of_zeros_has_no_counterpart() -> None:
    """An expert that the first batch does not use looks like a parameter that no batch does."""
    original, candidate = arm("FSDP1"), arm("FSDP2")
    original.parts[1, "gradient"]["expert"] = [part("expert", 0.0)]
    original.parts[1, "optimizer state exp_avg"] = {"expert": [part("expert", 0.0)]}
    assert verdict(original, candidate).passed
    original.parts[2, "gradient"]["expert"] = [part("expert", 1.0)]
    found = verdict(original, candidate)
    assert outcome(found, "Gradients before clipping") is Outcome.DIFFERS


def test_equal_nans_are_no_proof() -> None:
    arms = []
    for kind in ("FSDP1", "FSDP2"):
        made = arm(kind)
        for step in (1, *range(3, STEPS + 1)):  # the first is left out by the job, which goes on
            made.steps[step] = [replace(made.steps[step][0], losses=(math.nan,))]
        arms.append(made)
    found = verdict(*arms)
    assert found.passed
    assert "the loss is not a number from step 3 on" in found.warnings[0]
    for made in arms:
        made.steps[2] = [replace(made.steps[2][0], losses=(math.inf,))]
    found = verdict(*arms)
    assert outcome(found, "Enough was observed to judge") is Outcome.DIFFERS


def test_norms_that_are_reported_more_often_are_a_warning() -> None:
    arms = arm("FSDP1"), arm("FSDP2")
    clip = Clip("clip_grad_norm_", 2.0, 2.0, 0.5, ())
    for made, times in zip(arms, (1, 2), strict=True):
        for step, facts in made.steps.items():
            made.steps[step] = [replace(one, clips=(clip,) * times) for one in facts]
    found = verdict(*arms)
    assert found.passed
    (warning,) = found.warnings
    assert f"a gradient norm {STEPS} times and the candidate {2 * STEPS} times" in warning


def test_parameter_that_nobody_could_read_is_not_equal() -> None:
    arms = arm("FSDP1"), arm("FSDP2")
    for made in arms:
        made.shapes["unreadable"], made.trainable["unreadable"] = SHAPE, True
        made.shapes["empty"], made.trainable["empty"] = (0, 4), True
    found = verdict(*arms)
    assert outcome(found, "Enough was observed to judge") is Outcome.DIFFERS
    assert "not observed: weights of unreadable" in [check.detail for check in found.checks]


def test_second_model_that_is_still_fsdp1_is_named() -> None:
    candidate = arm("FSDP2")
    for name, kind in (("", "FSDP2"), ("model2", "FSDP1")):
        candidate.units.append(Unit(name, kind, "", "", False, "", 2, 1, False))
    found = verdict(arm("FSDP1"), candidate)
    assert outcome(found, "Sharding") is Outcome.DIFFERS
    assert (found.causes[0].code, "(model2)" in found.causes[0].text) == ("not-converted", True)


def test_replicas_that_are_unlike_in_both_arms_are_compared_rank_by_rank() -> None:
    """Parameters that FSDP ignores belong to their rank; the first rank's say nothing of the others'."""
    original, candidate = arm("FSDP1", ranks=2), arm("FSDP2", ranks=2)
    for made in (original, candidate):
        made.parts[2, "weight"]["w"] = [part("w", 3.0, 0), part("w", 4.0, 1)]
    assert verdict(original, candidate).passed
    candidate.parts[2, "weight"]["w"] = [part("w", 3.0, 0), part("w", 5.0, 1)]
    found = verdict(original, candidate)
    assert outcome(found, "Weights after each step") is Outcome.DIFFERS
    assert found.first is not None and found.first.name == "w (rank 1)"
