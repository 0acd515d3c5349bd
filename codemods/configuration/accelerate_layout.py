"""Accelerate's sharding strategies under FSDP2: `reshard_after_forward`, and the mesh of hybrid sharding.
Pure.

Source: accelerate 1.15 `utils/launch.py`, `parallelism_config.py`; torch
`_init_utils.py::_init_intra_and_inter_node_groups`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from codemods.configuration.settings import Decisions, Remark, strategy_named, truth


@dataclass(frozen=True, slots=True)
class Launch:
    """What stands around the FSDP settings.

    Attributes:
        num_processes: of all machines together; None where it is not said.
        mixed_precision: `no`, `fp16`, `bf16`, `fp8`; empty where it is not said.
        has_mesh: a `parallelism_config` is there already.
        can_have_mesh: a `parallelism_config` can be written.
        prefix: of the names of settings, `fsdp_` or nothing.
    """

    num_processes: int | None = None
    num_machines: int | None = None
    mixed_precision: str = ""
    has_mesh: bool = False
    can_have_mesh: bool = True
    prefix: str = "fsdp_"


def layout(
    settings: Mapping[str, object], spelled: Mapping[str, str], launch: Launch, done: Decisions
) -> None:
    """Decide about `sharding_strategy` and `reshard_after_forward`."""
    key = next((k for k in ("sharding_strategy", "reshard_after_forward") if k in settings), None)
    if key is None:
        return  # both versions default to full sharding
    strategy = strategy_named(settings[key])
    if key == "reshard_after_forward":
        _reshard_of_fsdp1(settings[key], strategy, spelled[key], done)
        return
    name = spelled[key]
    reshard = f"{launch.prefix}reshard_after_forward" if name.startswith("fsdp_") else "reshard_after_forward"
    match strategy:
        case "FULL_SHARD" | "SHARD_GRAD_OP":
            _set_reshard(done, spelled, name, reshard, strategy == "FULL_SHARD")
        case "HYBRID_SHARD" | "HYBRID_SHARD_ZERO2":
            _hybrid(name, strategy, launch, done)
            _set_reshard(done, spelled, name, reshard, strategy == "HYBRID_SHARD")
        case "NO_SHARD":
            done.block(
                name,
                "FM602",
                "`NO_SHARD` keeps every parameter whole; Accelerate's FSDP2 has no such layout: "
                "`reshard_after_forward: false` would shard them",
                "train with DDP, which is the same layout: `distributed_type: MULTI_GPU` and no "
                "`fsdp_config`; "
                "or choose FULL_SHARD here knowingly",
            )
        case _:
            done.block(
                name,
                "FM602",
                f"`{name}: {settings[key]}` is no sharding strategy that is known here",
                "write the strategy's name (FULL_SHARD, SHARD_GRAD_OP) or set `fsdp_reshard_after_forward` "
                "by hand",
            )


def _set_reshard(done: Decisions, spelled: Mapping[str, str], name: str, reshard: str, value: bool) -> None:
    """`sharding_strategy` becomes `reshard_after_forward`; where both stand, the strategy is what counted."""
    both = spelled.get("reshard_after_forward")
    if both is None:
        done.replaced[name] = (reshard, value)
    else:
        done.removed.append(name)
        done.replaced[both] = (both, value)


def _reshard_of_fsdp1(value: object, strategy: str | None, name: str, done: Decisions) -> None:
    """Under version 1 the launcher always sets FSDP_SHARDING_STRATEGY, so this key never had an effect."""
    done.replaced[name] = (name, True)
    if strategy != "FULL_SHARD" and truth(value) is not True:
        done.remarks.append(
            Remark(
                name,
                "FM607",
                f"under `fsdp_version: 1` Accelerate did not read `{name}: {value}`: the launcher's "
                "default, FULL_SHARD, "
                "was in force; `true` keeps that",
                is_note=True,
            )
        )


def _hybrid(name: str, strategy: str, launch: Launch, done: Decisions) -> None:
    """FSDP1 shards within a machine and replicates across machines; Accelerate's FSDP2 needs that as mesh
    sizes."""
    sizes = (launch.num_processes, launch.num_machines)
    processes, machines = sizes
    if launch.has_mesh or not launch.can_have_mesh or processes is None or machines is None:
        why = (
            "a `parallelism_config` stands here already"
            if launch.has_mesh
            else "the number of machines is not said here"
        )
        done.block(
            name,
            "FM603",
            f"`{strategy}` shards within each machine and replicates across machines; under FSDP2 "
            "Accelerate takes that from "
            f"`parallelism_config`, and {why}",
            "give the mesh: `parallelism_config` with `parallelism_config_dp_replicate_size` (machines) and "
            "`parallelism_config_dp_shard_size` (processes of one machine)",
        )
    elif machines < 1 or processes < 2 or processes % machines or processes == machines:
        done.block(
            name,
            "FM603",
            f"`{strategy}` on {processes} processes of {machines} machines leaves nothing to shard within a "
            "machine",
            "choose FULL_SHARD, or correct `num_processes` (of all machines together) and `num_machines`",
        )
    else:
        done.mesh = (machines, processes // machines)
        done.note(
            name,
            "FM603",
            f"`{strategy}` becomes a mesh of {machines} replicas of {processes // machines} shards, as "
            "`num_processes` and "
            "`num_machines` say; Accelerate refuses to start where the command line changes those",
        )
