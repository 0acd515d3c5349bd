"""Rules for what is sharded, trained and called, and in which state the program calls it; pure."""

from __future__ import annotations

from fsdp_migrate.verify import world_sizes
from fsdp_migrate.verify.evidence import Evidence
from fsdp_migrate.verify.model import Cause
from fsdp_migrate.verify.noise import other_kernels
from fsdp_migrate.verify.record import ArmRecord, same_units

_SHOWN = 3


def listed(names: list[str]) -> str:
    """The first names, and that there are more."""
    return ", ".join(name or "(root)" for name in names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")


def not_sharded(evidence: Evidence) -> Cause | None:
    """Parameters that FSDP1 managed and `fully_shard` does not."""
    original, candidate = evidence.original, evidence.candidate
    if candidate.kind == "DDP" and original.shares_weights:
        return Cause(
            "not-sharded",
            "the candidate is trained by DistributedDataParallel: every rank keeps all weights, gradients "
            "and optimizer state, of which the ranks of the original keep a part each",
            "call fully_shard, or tell the framework to (an option that named FSDP1 may have turned FSDP "
            "off)",
        )
    if candidate.kind == "DDP":  # a right way to replace NO_SHARD
        return None
    before = [name for name, managed in original.sharded.items() if managed]
    lost = sorted(name for name in before if candidate.sharded.get(name) is False)
    if not lost:
        return None
    if len(lost) == len(before):
        return Cause(
            "not-sharded",
            f"nothing of the candidate is sharded ({candidate.kind}): fully_shard was never called, so every "
            "rank trains a model of its own and gradients are not averaged",
            "look for a branch that is no longer taken: isinstance(m, FullyShardedDataParallel) is False and "
            "strings that named FSDP1 may have changed",
        )
    return Cause(
        "not-sharded",
        f"{len(lost)} of {len(before)} parameters are not sharded in the candidate ({listed(lost)}) and were "
        "in the original: their gradients are not averaged over the ranks",
        "call fully_shard on the root last, so that it takes what the other units left; ignored_params names "
        "only what FSDP1 ignored",
    )


def ignored_sharded(evidence: Evidence) -> Cause | None:
    """Parameters that FSDP1 ignored and `fully_shard` manages."""
    new = sorted(
        name
        for name, managed in evidence.candidate.sharded.items()
        if managed and evidence.original.sharded.get(name) is False
    )
    if not new or evidence.original.kind != "FSDP1":
        return None
    return Cause(
        "ignored-sharded",
        f"{len(new)} parameters that FSDP1 ignored are sharded in the candidate ({listed(new)}), and their "
        "gradients averaged",
        "give ignored_params to every fully_shard call: FSDP1 handed ignored_states on to nested units",
    )


def fewer_ranks(evidence: Evidence) -> Cause | None:
    """A unit's mesh has lost ranks, so that shards and replicas together are fewer."""
    original, candidate = evidence.original, evidence.candidate
    if world_sizes.differ(original, candidate):
        return None
    for left, right in same_units(original, candidate):
        before, after = left.shards * max(1, left.replicas), right.shards * max(1, right.replicas)
        if 0 < after < before:
            return Cause(
                "part-of-mesh",
                f"unit {right.name or '(root)'} is kept by {after} ranks in the candidate and by {before} in "
                "the original: fully_shard was given a part of the mesh, so that gradients are averaged over "
                "that part alone",
                "give fully_shard the mesh of all dimensions, (replicas, shards), and not mesh[name] of one",
            )
    return None


def units_of_fsdp1(arm: ArmRecord) -> list[str]:
    """Units that FSDP1 shards, of any model of the job."""
    return [unit.name for unit in arm.units if unit.kind == "FSDP1"]


def trainable(evidence: Evidence) -> Cause | None:
    """`requires_grad` has another value."""
    before, after = evidence.original.trainable, evidence.candidate.trainable
    thawed = sorted(name for name in before if not before[name] and after.get(name))
    frozen = sorted(name for name in before if before[name] and after.get(name) is False)
    if not thawed and not frozen:
        return None
    words = [
        f"{len(names)} parameters {what} ({listed(names)})"
        for names, what in (
            (thawed, "are frozen in the original and train in the candidate"),
            (frozen, "train in the original and are frozen in the candidate"),
        )
        if names
    ]
    return Cause(
        "trainable",
        "; ".join(words),
        "set requires_grad before fully_shard, on the same parameters; filters by type or name of a module "
        "see other types and names after it",
    )


def random_state(evidence: Evidence) -> Cause | None:
    """The loss differs, and random numbers are drawn from another state."""
    first = evidence.first
    if first is None or first.quantity != "loss":
        return None
    arms = (evidence.original.steps[first.step], evidence.candidate.steps.get(first.step, []))
    pairs = zip(*arms, strict=False)
    ranks = [rank for rank, (left, right) in enumerate(pairs) if left.random != right.random]
    if not ranks or world_sizes.differ(evidence.original, evidence.candidate):
        return _other_numbers(evidence, first.step)
    words = (
        f"the random number generator is in another state when the model is called in step {first.step} "
        f"(rank {', '.join(map(str, ranks))}): dropout and the like draw other numbers, because the "
        "candidate "
    )
    shared = [len({one.random for one in arm}) == 1 < len(arm) for arm in arms]
    if shared[0] != shared[1]:
        numbers = ("each rank with its own number", "every rank with the same number")
        return Cause(
            "random-state",
            f"{words}seeds {numbers[shared[1]]}, and the original {numbers[shared[0]]}",
            "seed with what the original seeds with: a number alone, or one that the rank is added to",
        )
    return Cause(
        "random-state",
        f"{words}has drawn more or fewer before, or is seeded otherwise",
        "seed again after the model is built and sharded, in both programs, or draw as often as the original",
    )


def _other_numbers(evidence: Evidence, step: int) -> Cause | None:
    """The generators are alike, the job draws from them, and releases of torch draw other numbers."""
    original, candidate = evidence.original, evidence.candidate
    states = {one.random for at in original.steps for one in original.steps[at][:1]}
    why = other_kernels(original, candidate)
    if len(states) < 2 or not why:
        return None
    return Cause(
        "other-random-numbers",
        f"the loss of step {step} differs though weights and inputs are equal, and the job draws random "
        f"numbers in its steps: {why}, and may draw others (dropout on a CPU does)",
        "record and verify without dropout and the like; what they draw cannot be compared",
    )


def evaluation_mode(evidence: Evidence) -> Cause | None:
    """Modules are called in another mode."""
    first = evidence.first
    if first is None or first.quantity not in ("loss", "gradient", "buffer"):
        return None
    for step in range(1, max(1, first.step) + 1):
        left, right = evidence.original.steps.get(step), evidence.candidate.steps.get(step)
        if left and right and left[0].evaluating != right[0].evaluating:
            before, after = left[0].evaluating, right[0].evaluating
            return Cause(
                "evaluation-mode",
                f"{after} modules are in evaluation mode in the candidate when the model is called in step "
                f"{step}, and {before} in the original: dropout is off or statistics stand still there",
                "call model.train() and model.eval() where the original does",
            )
    return None


def outside_writes(evidence: Evidence) -> Cause | None:
    """Weights were changed by something else than the optimizer, in one arm alone."""
    first = evidence.first
    if first is None:
        return None
    not_looked_at = evidence.original.sparse | evidence.candidate.sparse
    for step in range(2, first.step + 1):
        if step in not_looked_at:
            continue
        before = {n for one in evidence.original.steps.get(step, []) for n in one.rewritten}
        after = {n for one in evidence.candidate.steps.get(step, []) for n in one.rewritten}
        if before == after:
            continue
        lost, new = sorted(before - after), sorted(after - before)
        arm, other, names = ("original", "candidate", lost) if lost else ("candidate", "original", new)
        return Cause(
            "outside-write",
            f"between steps {step - 1} and {step} the {arm} changed {len(names)} weights outside the "
            f"optimizer ({listed(names)}) and the {other} did not",
            "write to the sharded parameters themselves: what is written between unshard() and reshard(), or "
            "to a parameter taken after a forward pass, is lost",
        )
    return None
