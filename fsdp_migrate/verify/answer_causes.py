"""Names why models answer something else when they are called without gradients; pure."""

from __future__ import annotations

from fsdp_migrate.verify.answer_calls import Missing, answer_pairs, asked_otherwise, missing_call
from fsdp_migrate.verify.evidence import Evidence
from fsdp_migrate.verify.model import ANSWER, Cause
from fsdp_migrate.verify.sharding_causes import listed

_TRAINED = ("loss", "gradient")


def answers_differ(evidence: Evidence) -> Cause | None:
    """The first difference is what a model answers without gradients, or what it is asked."""
    first = evidence.first
    other = asked_otherwise(evidence.original, evidence.candidate)
    if other is not None and (first is None or first.step > other[0].step):
        return Cause(
            "evaluated-on-other-data",
            f"a model that is called without gradients is given other inputs ({other[0].words}): it is "
            "evaluated on other data, or in another order",
            "compare the samplers, seeds and batch sizes of evaluation, and what is generated for it",
        )
    if first is None or first.quantity != ANSWER:
        return None
    if cause := _mode(evidence, first.step):
        return cause
    pairs = answer_pairs(evidence.original, evidence.candidate)
    left, right = next(
        (left, right) for left, right in pairs if left.step == first.step and first.name.startswith(left.name)
    )
    words = f"what a model answers without gradients differs ({left.words}) though its inputs are equal"
    if left.model.startswith("other") and (weights := _other_weights(evidence, first.step + 1)):
        return Cause(
            "other-model",
            f"{words}: {weights}",
            "build, load, copy and update that model (a teacher, a reference, an average) as the original "
            "does, from parameters that are taken anew each time",
        )
    if left.random and right.random and left.random != right.random:
        return Cause(
            "random-state",
            f"{words}: the random number generator is in another state then, because the candidate has drawn "
            "more or fewer numbers before, or is seeded otherwise",
            "seed with what the original seeds with, and draw as often; look at the mode of models with "
            "dropout too",
        )
    return Cause(
        "answers-differ",
        f"{words}, and so is all that was trained until then",
        "look at autocast and dtypes of evaluation, at which model or average is evaluated, and at weights "
        "that are written or loaded before it: a root unit keeps what it gathered in a call without "
        "gradients until its next backward pass or reshard(), in FSDP1 too",
    )


def mode_before(evidence: Evidence) -> Cause | None:
    """A model is called without gradients in another mode, and draws other random numbers there."""
    first = evidence.first
    if first is None or first.quantity != "loss":
        return None
    arms = (evidence.original.steps.get(first.step, []), evidence.candidate.steps.get(first.step, []))
    apart = any(left.random != right.random for left, right in zip(*arms, strict=False))
    return _mode(evidence, first.step - 1) if apart else None


def _mode(evidence: Evidence, last: int) -> Cause | None:
    """The first call without gradients, up to those after step `last`, that is made in another mode."""
    for left, right in answer_pairs(evidence.original, evidence.candidate):
        if left.step <= last and left.training != right.training:
            more = "candidate" if right.training > left.training else "original"
            return Cause(
                "evaluated-in-training-mode",
                f"{abs(right.training - left.training)} more modules are in training mode in the {more} when "
                f"a model is called without gradients ({left.words}): dropout, batch statistics are others "
                "there",
                "call model.eval() and model.train() where the original does",
            )
    return None


def other_dtypes(evidence: Evidence) -> Cause | None:
    """Weights of a model that is only called without gradients are in another dtype."""
    last = min(evidence.original.last_step, evidence.candidate.last_step)
    for step in range(1, last + 1):
        if words := _other_dtypes(evidence, step):
            return Cause(
                "other-model",
                f"a model that is only called without gradients has another dtype: {words}",
                "build, load and copy that model as the original does",
            )
    return None


def _other_dtypes(evidence: Evidence, step: int) -> str:
    left, right = (
        arm.tensors(step, "weight of another model") for arm in (evidence.original, evidence.candidate)
    )
    for name in left:
        if name in right and left[name][0].dtype != right[name][0].dtype:
            return (
                f"its weights are {right[name][0].dtype} in the candidate and {left[name][0].dtype} in the "
                f"original ({name})"
            )
    return ""


def _other_weights(evidence: Evidence, step: int) -> str:
    """How the weights of models that are only called without gradients differ after a step; "" if equal."""
    apart = [
        one.name
        for one in evidence.comparison.differences
        if one.fails and (one.step, one.quantity) == (step, "weight of another model")
    ]
    count = len(evidence.original.tensors(step, "weight of another model"))
    return f"{len(apart)} of {count} of its weights differ ({listed(sorted(apart))})" if apart else ""


def calls_gone_before(evidence: Evidence) -> Cause | None:
    """A model is no longer called without gradients, or is now, before anything else differs."""
    missing = missing_call(evidence.original, evidence.candidate)
    first = evidence.first
    is_before = missing and first and first.quantity in _TRAINED and missing.step < first.step
    return _calls_gone(missing) if is_before else None


def calls_gone(evidence: Evidence) -> Cause | None:
    """A model is no longer called without gradients, or is now."""
    missing = missing_call(evidence.original, evidence.candidate)
    return None if calls_gone_before(evidence) else _calls_gone(missing)


def _calls_gone(missing: Missing | None) -> Cause | None:
    remedy = "compare where both programs evaluate, sample, or ask a second model"
    return Cause("calls-gone", missing.words, remedy) if missing else None
