"""Names why models answer something else when they are called without gradients; pure."""

from __future__ import annotations

from fsdp_migrate.verify.answer_calls import answer_pairs, asked_otherwise, missing_calls
from fsdp_migrate.verify.evidence import Evidence
from fsdp_migrate.verify.model import ANSWER, Cause


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
    pairs = answer_pairs(evidence.original, evidence.candidate)
    left, right = next(
        (left, right) for left, right in pairs if left.step == first.step and first.name.startswith(left.name)
    )
    if left.training != right.training:
        more = "candidate" if right.training > left.training else "original"
        return Cause(
            "evaluated-in-training-mode",
            f"{abs(right.training - left.training)} more modules are in training mode in the {more} when a "
            f"model is called without gradients ({left.words}): dropout, batch statistics are others there",
            "call model.eval() and model.train() where the original does",
        )
    return Cause(
        "answers-differ",
        f"what a model answers without gradients differs ({left.words}) though its inputs are equal, and so "
        "is all that was trained until then",
        "look at autocast and dtypes of evaluation, at which model or average is evaluated, and at weights "
        "that are written or loaded before it: a root unit keeps what it gathered in a call without "
        "gradients until its next backward pass or reshard(), in FSDP1 too",
    )


def calls_gone(evidence: Evidence) -> Cause | None:
    """A model is no longer called without gradients, or is now."""
    words = missing_calls(evidence.original, evidence.candidate)
    if not words:
        return None
    return Cause("calls-gone", words, "compare where both programs evaluate, sample, or ask a second model")
