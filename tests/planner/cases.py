"""Jobs that are measured on real tensors of real ranks, and on fake ones."""

from __future__ import annotations

from dataclasses import replace

from fsdp_migrate.planner.model import Inputs, Job, Settings

WORLD = 3
_BLOCK = "tests.planner.models:Block"
_PLAIN = Settings(WORLD)
_MIXED = replace(_PLAIN, param_dtype="bfloat16", reduce_dtype="float32")
_CALLED = Inputs(function="tests.planner.models:ids_and_labels")


def _job(name: str, settings: Settings, wrap: str | None = _BLOCK, inputs: Inputs = _CALLED) -> Job:
    return Job(f"tests.planner.models:{name}", wrap, settings, inputs)


JOBS = {
    "uneven": _job("uneven", _PLAIN),
    "tied, mixed precision": _job("tied", _MIXED),
    "frozen units": _job("frozen", _MIXED),
    "adapters": _job("adapted", _PLAIN, "tests.planner.models:Adapter"),
    "units in units, not called": _job("experts", _MIXED, "tests.planner.models:Experts,Block", Inputs()),
    "one unit, not called": _job("uneven", _MIXED, None, Inputs()),
    "shard_grad_op, token ids": _job(
        "uneven", replace(_MIXED, strategy="shard_grad_op"), inputs=Inputs(batch=3, sequence=7)
    ),
    "no_shard, momentum": _job("uneven", replace(_PLAIN, strategy="no_shard", optimizer="sgd-momentum")),
    "checkpointing, original parameters": _job(
        "tied", replace(_MIXED, checkpointing=True, use_orig_params=True)
    ),
    "stored in bfloat16, fused, loss of its own": _job(
        "experts",
        replace(_PLAIN, dtype="bfloat16", optimizer="adamw-fused"),
        "tests.planner.models:Experts",
        Inputs("tests.planner.models:ids", "tests.planner.models:cross_entropy"),
    ),
}

HELD = tuple(JOBS)[:6]
"""Those that three gloo ranks train as well."""
