"""Other ways to run a job, and which of them to take; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fsdp_migrate.planner.model import Alternative, ArmMemory, Gpu, Job, Settings, fits

GPUS_PER_NODE = 8
"""Of the machines that are sold for training; what hybrid sharding keeps its shards within."""

_LARGEST_BATCH = 64


def ways(job: Job) -> list[Settings]:
    """Meshes, strategies and checkpointing, in the order in which one would take them.

    First those that compute nothing twice, then those that gather parameters once and not twice a step, then
    those that gather them within a node. Checkpointing matters where the model is called and units are named.
    """
    checkpointing = (False, True) if job.wrap and job.inputs.are_known else (False,)
    found = [
        replace(job.settings, checkpointing=again, strategy=strategy, replicate=replicate)
        for again in checkpointing
        for strategy in ("shard_grad_op", "full_shard")
        for replicate in _replicas(job.settings)
    ]
    return list(dict.fromkeys(found))


def _replicas(settings: Settings) -> list[int]:
    per_node = settings.world // GPUS_PER_NODE if settings.world % GPUS_PER_NODE == 0 else 1
    return sorted({1, per_node, settings.replicate}, reverse=True)


def batches_to_try(batch: int | None) -> Iterator[int]:
    """Twice, four times, ... the batch; nothing where inputs are a function's."""
    while batch is not None and batch < _LARGEST_BATCH:
        batch *= 2
        yield batch


def best(alternatives: Sequence[Alternative], gpu: Gpu) -> Alternative | None:
    """Of what fits the first, with its largest batch.

    Where activations are not known, nothing can be said to fit.
    """
    there = [one for one in alternatives if fits(one.arm, gpu) and _is_whole(one)]
    if not there:
        return None
    alike = [one for one in there if one.settings == there[0].settings]
    return max(alike, key=lambda one: one.batch or 0)


def _is_whole(one: Alternative) -> bool:
    return isinstance(one.arm, ArmMemory) and one.arm.activations is not None


def settings_in_words(settings: Settings) -> str:
    """`full_shard over 8 x 8, checkpointing`."""
    over = f"{settings.replicate} x {settings.shard}" if settings.replicate > 1 else str(settings.shard)
    again = ", checkpointing" if settings.checkpointing else ""
    return f"{settings.strategy} over {over}{again}"
