"""Rules for what the models are given; pure."""

from __future__ import annotations

from fsdp_migrate.verify import gradient_causes, scaler_causes, world_sizes
from fsdp_migrate.verify.evidence import Evidence
from fsdp_migrate.verify.model import Cause, Difference
from fsdp_migrate.verify.model_inputs import parted


def inputs(evidence: Evidence) -> Cause | None:
    """The models were given other inputs."""
    if world_sizes.differ(evidence.original, evidence.candidate):
        return _other_batches(evidence)
    if (step := _same_on_all_ranks(evidence)) is not None:
        return Cause(
            "same-data",
            f"every rank of the candidate is given the same inputs in step {step}, and ranks of the original "
            "are given different ones: the data is no longer distributed over the ranks",
            "give the data loader a DistributedSampler, or seed by rank, as the original does",
        )
    found = parted(evidence.original, evidence.candidate, evidence.comparison)
    first = evidence.first
    if found is None or found.by_rounding or _is_earlier(first, found.step):
        return None
    if scaler_causes.other_passes(evidence) or scaler_causes.turns(evidence):
        return None  # the same data, of which a step takes another part
    if found.step == 1 and evidence.original.resumes and evidence.candidate.resumes:
        return Cause(
            "resumed-elsewhere",
            "both arms resume, and the model is given other inputs in the first step (rank "
            f"{', '.join(map(str, found.ranks))}): the candidate does not go on at the same place in "
            "the data",
            "restore what the original restores beside weights and optimizer: the step or epoch that the "
            "checkpoint holds, the sampler's position, random states; convert-ckpt keeps such values under "
            "their own keys",
        )
    arms = (evidence.original.steps[found.step], evidence.candidate.steps[found.step])
    pairs = zip(*arms, strict=False)
    drawn = any(left.random and right.random and left.random != right.random for left, right in pairs)
    return Cause(
        "different-data",
        f"the model was given other inputs in step {found.step} (rank {', '.join(map(str, found.ranks))}): "
        "the arms read different data, so nothing can be said of the numbers after it"
        + "; torch's random number generator is in another state there too"
        * drawn,
        "seed the data order in the script itself, and keep the order in which it draws random numbers; of "
        "inputs that are computed (sampled, noised, encoded) look at what computes them",
    )


def _is_earlier(first: Difference | None, step: int) -> bool:
    """Whether something differs before the inputs of `step`; buffers of step 0 are seen after the first."""
    if first is None:
        return False
    seen_at = 1 if (first.step, first.quantity) == (0, "buffer") else first.step
    return seen_at < step


def _other_batches(evidence: Evidence) -> Cause | None:
    """The first numbers differ, and nothing says that the ranks together took in the same batch."""
    first, original, candidate = evidence.first, evidence.original, evidence.candidate
    if first is None or world_sizes.same_inputs(original, candidate, max(1, first.step)):
        return None
    loss_is_told = world_sizes.passes(original) == world_sizes.passes(candidate)
    if first.quantity != "loss" and (loss_is_told or first.quantity != "gradient"):
        return None
    if gradient_causes.scale(evidence) is not None:
        return None
    return Cause(
        "other-batches",
        f"the original ran on {original.ranks} ranks and the candidate on {candidate.ranks}, and the "
        f"{first.quantity} of step {first.step} differs: the ranks together did not take in the same batch",
        f"keep the batch of a step (ranks x micro-batch x accumulation) and its samples, or give --nproc "
        f"{original.ranks}",
    )


def _same_on_all_ranks(evidence: Evidence) -> int | None:
    """The first step in which ranks share their inputs in the candidate alone."""
    for step in sorted(set(evidence.original.steps) & set(evidence.candidate.steps)):
        seen = [{one.inputs for one in arm.steps[step]} for arm in (evidence.original, evidence.candidate)]
        if len(seen[0]) > 1 and len(seen[1]) == 1:
            return step
    return None
