"""Says where to look when no rule knows why the arms differ; pure."""

from __future__ import annotations

from fsdp_migrate.verify import world_sizes
from fsdp_migrate.verify.evidence import Evidence
from fsdp_migrate.verify.model import CLIPPED, Cause, Difference
from fsdp_migrate.verify.sharding_causes import listed

_FORWARD = (
    "look at dropout and other random numbers, autocast (its weight cache must not outlive a step), dtypes "
    "of inputs and buffers, masks and other arguments, and settings that are no tensors"
)
_LOSS = (
    "look between the model's call and backward(): the loss function and its arguments (label smoothing, "
    "ignored targets), terms that are added to it and their weights, the dtype in which it is computed, the "
    "number that it is divided by (tokens of this rank, or of all; micro-batches), and what asks the name "
    "of the model's class, which fully_shard changes (the Trainer does with label_smoothing_factor, and then "
    "shifts no labels)"
)
_SINCE = (
    "; steps before it agree, so look at what changes from step to step: weights of terms that are warmed "
    "up, annealed or switched on, and counters that they are computed from"
)


def where_to_look(evidence: Evidence) -> Cause | None:
    """The place of the first difference, and what is known to differ there."""
    first = evidence.first
    if first is None:
        return None
    if first.quantity == "loss":
        return _of_loss(evidence, first)
    step = first.step
    if first.quantity.startswith("optimizer state"):
        return Cause(
            "where-to-look",
            f"the {first.quantity} differs after step {step} though the gradients that the optimizer got are "
            f"equal{_which(evidence, first)}",
            "look at the optimizer's own code, which may read .grad or its state as whole tensors and gets "
            "DTensors now, and at its settings",
        )
    words = {
        "gradient": (
            f"the gradients of step {step} differ though its loss is equal{_which(evidence, first)}",
            "look at gradient accumulation, zero_grad() while synchronisation is off (FSDP2 keeps such "
            "gradients), reduce_dtype, the number the loss is divided by, and what is detached from it",
        ),
        "gradient norm": (
            f"the norm that clipping works with is {first.candidate:.7g} in the candidate and "
            f"{first.original:.7g} in the original in step {step}, though gradients are equal after "
            "backward()",
            "look at which parameters it is taken of, the kind of norm, and whether gradients are unscaled "
            "or otherwise changed before it in both programs",
        ),
        CLIPPED: (
            f"the gradients of step {step} are equal after backward() and differ when the optimizer gets "
            f"them{_which(evidence, first)}",
            "look at clipping, unscaling, reductions by the job's own hand, and anything else that changes "
            "gradients in between",
        ),
        "weight": (
            f"the weights differ after step {step} though its gradients are equal{_which(evidence, first)}",
            "look at the optimizer: its parameter groups, its state, its settings",
        ),
    }.get(first.quantity)
    return None if words is None else Cause("where-to-look", *words)


def _of_loss(evidence: Evidence, first: Difference) -> Cause:
    words = f"the loss of step {first.step} differs though weights before it and inputs are equal"
    alike = first.step == 1 and not world_sizes.differ(evidence.original, evidence.candidate)
    apart = _first_output_apart(evidence) if alike else None
    if apart is None and _returned_alike(evidence, first.step):
        words += ", and so is what the model returns (a sample of it, bit for bit): the loss differs"
        return Cause("other-loss", words, f"{_LOSS}{_SINCE if first.step > 1 else ''}")
    if apart is None:
        words += ": the forward pass or the loss differs"
        return Cause("where-to-look", words, f"{_FORWARD}. {_LOSS}")
    rank, name = apart
    if name is None:
        return Cause("other-loss", f"{words}, and so is what the model returns: the loss differs", _LOSS)
    module = f"{name} returns" if name else "the model returns, after its units have agreed,"
    words += f": {module} something else on rank {rank} (outputs are compared bit for bit)"
    # A model that is given labels returns its loss.
    return Cause("other-forward", words, _FORWARD if name else f"{_FORWARD}. {_LOSS}")


def _returned_alike(evidence: Evidence, step: int) -> bool:
    """Whether models returned the same on all ranks in that step; a model that returns its loss did not."""
    arms = [evidence.original.steps.get(step, []), evidence.candidate.steps.get(step, [])]
    pairs = list(zip(*arms, strict=False))
    return (
        bool(pairs)
        and not world_sizes.differ(evidence.original, evidence.candidate)
        and all(left.outputs and left.outputs == right.outputs for left, right in pairs)
    )


def _first_output_apart(evidence: Evidence) -> tuple[int, str | None] | None:
    """The first unit in order of calls whose output is not the same, with its rank.

    Returns:
        No name where all outputs are equal; `None` where they were not recorded in both arms.
    """
    both = sorted(set(evidence.original.outputs) & set(evidence.candidate.outputs))
    compared = False
    for rank in both:
        before, after = evidence.original.outputs[rank], evidence.candidate.outputs[rank]
        for name in before:
            if name in after and before[name] != after[name]:
                return rank, name
        compared = compared or "" in before.keys() & after.keys()
    return (0, None) if compared else None


def _which(evidence: Evidence, first: Difference) -> str:
    """How many tensors differ there, and their names where they are not all."""
    names = sorted(
        {
            one.name
            for one in evidence.comparison.differences
            if one.fails and (one.step, one.quantity) == (first.step, first.quantity)
        }
    )
    among = len(evidence.original.tensors(first.step, first.quantity))
    return f" ({len(names)} of {among}: {listed(names)})" if len(names) < among else ""
