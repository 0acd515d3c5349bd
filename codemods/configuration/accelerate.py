"""Accelerate's FSDP settings: what each becomes under `fsdp_version: 2`. Pure.

Source: accelerate 1.15, `commands/launch.py` (defaults of the launcher), `utils/launch.py` (settings to environment),
`utils/dataclasses.py::FullyShardedDataParallelPlugin`, `utils/fsdp_utils.py` (`fsdp2_prepare_model`, `fsdp2_apply_ac`),
`parallelism_config.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from codemods.configuration.settings import Decisions, Remark, number, strategy_named, truth

KEPT = frozenset(
    {
        "auto_wrap_policy",
        "transformer_layer_cls_to_wrap",
        "offload_params",
        "cpu_ram_efficient_loading",
        "activation_checkpointing",
        "activation_checkpointing_offload",
        "ignored_modules",
    }
)
"""Settings that mean the same under both versions."""

ONLY_FSDP1 = frozenset(
    {
        "sharding_strategy",
        "backward_prefetch",
        "backward_prefetch_policy",
        "forward_prefetch",
        "use_orig_params",
        "sync_module_states",
        "limit_all_gathers",
    }
)
"""Settings that FSDP2 does not have."""

KNOWN = KEPT | ONLY_FSDP1 | {"version", "reshard_after_forward", "state_dict_type", "min_num_params"}

RAM = "cpu_ram_efficient_loading"

_MARKS = frozenset(
    {"compute_environment", "distributed_type", "num_processes", "num_machines", "machine_rank"}
)


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


def bare(key: str) -> str:
    """A setting's name without `fsdp_`; Accelerate accepts both spellings in its files."""
    return key.removeprefix("fsdp_")


def is_accelerate(top: Mapping[str, object]) -> bool:
    """Whether a file is Accelerate's, by what it says besides the FSDP settings."""
    return bool(_MARKS & set(top))


def is_fsdp2(settings: Mapping[str, object]) -> bool:
    """Whether settings (with bare names) say that they are FSDP2's."""
    return number(settings.get("version")) == 2


def to_fsdp2(written: Mapping[str, object], launch: Launch) -> Decisions:
    """Decide about every setting of an FSDP1 block.

    Args:
        written: the settings by the names they have in the file.
    """
    done = Decisions()
    settings = {bare(key): value for key, value in written.items()}
    spelled = {bare(key): key for key in written}
    _layout(settings, spelled, launch, done)
    _state_dict(settings, spelled, launch, done)
    _units(settings, spelled, done)
    _initial_weights(settings, spelled, launch, done)
    _dropped(settings, spelled, done)
    _activation_checkpointing(settings, spelled, done)
    _precision(launch, done)
    for key in settings:
        if key not in KNOWN:
            done.note(
                spelled[key],
                "FM609",
                f"`{spelled[key]}` is no FSDP setting of accelerate 1.x that is known here; it is kept as it is",
            )
    if "version" in spelled:
        done.replaced[spelled["version"]] = (spelled["version"], 2)
    else:
        done.added.append((f"{launch.prefix}version", 2))
    return done


def _layout(
    settings: Mapping[str, object], spelled: Mapping[str, str], launch: Launch, done: Decisions
) -> None:
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
                "train with DDP, which is the same layout: `distributed_type: MULTI_GPU` and no `fsdp_config`; "
                "or choose FULL_SHARD here knowingly",
            )
        case _:
            done.block(
                name,
                "FM602",
                f"`{name}: {settings[key]}` is no sharding strategy that is known here",
                "write the strategy's name (FULL_SHARD, SHARD_GRAD_OP) or set `fsdp_reshard_after_forward` by hand",
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
                f"under `fsdp_version: 1` Accelerate did not read `{name}: {value}`: the launcher's default, FULL_SHARD, "
                "was in force; `true` keeps that",
                is_note=True,
            )
        )


def _hybrid(name: str, strategy: str, launch: Launch, done: Decisions) -> None:
    """FSDP1 shards within a machine and replicates across machines; Accelerate's FSDP2 needs that as mesh sizes."""
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
            f"`{strategy}` shards within each machine and replicates across machines; under FSDP2 Accelerate takes that from "
            f"`parallelism_config`, and {why}",
            "give the mesh: `parallelism_config` with `parallelism_config_dp_replicate_size` (machines) and "
            "`parallelism_config_dp_shard_size` (processes of one machine)",
        )
    elif machines < 1 or processes < 2 or processes % machines or processes == machines:
        done.block(
            name,
            "FM603",
            f"`{strategy}` on {processes} processes of {machines} machines leaves nothing to shard within a machine",
            "choose FULL_SHARD, or correct `num_processes` (of all machines together) and `num_machines`",
        )
    else:
        done.mesh = (machines, processes // machines)
        done.note(
            name,
            "FM603",
            f"`{strategy}` becomes a mesh of {machines} replicas of {processes // machines} shards, as `num_processes` and "
            "`num_machines` say; Accelerate refuses to start where the command line changes those",
        )


def _state_dict(
    settings: Mapping[str, object], spelled: Mapping[str, str], launch: Launch, done: Decisions
) -> None:
    if "state_dict_type" not in settings:
        # FSDP1 defaults to full, FSDP2 to sharded state dicts.
        done.added.append((f"{launch.prefix}state_dict_type", "FULL_STATE_DICT"))
        return
    kind = str(settings["state_dict_type"]).upper().rpartition(".")[2]
    if kind in ("LOCAL_STATE_DICT", "2"):
        done.block(
            spelled["state_dict_type"],
            "FM604",
            "LOCAL_STATE_DICT (flat shards) does not exist under FSDP2: Accelerate refuses it",
            "use SHARDED_STATE_DICT, and convert the checkpoints with `fsdp-migrate convert-ckpt`",
        )


def _units(settings: Mapping[str, object], spelled: Mapping[str, str], done: Decisions) -> None:
    policy = str(settings.get("auto_wrap_policy", "NO_WRAP")).upper()
    if policy == "SIZE_BASED_WRAP":
        done.note(
            spelled["auto_wrap_policy"],
            "FM606",
            "SIZE_BASED_WRAP makes other units under FSDP2: Accelerate counts all parameters of a module, FSDP1 those not "
            "yet wrapped; TRANSFORMER_BASED_WRAP with the layer classes names the units",
        )


def _initial_weights(
    settings: Mapping[str, object], spelled: Mapping[str, str], launch: Launch, done: Decisions
) -> None:
    """`sync_module_states` (the launcher's default) made all ranks start from rank 0's weights."""
    if (
        truth(settings.get(RAM, True)) is not False
        or truth(settings.get("sync_module_states", True)) is False
    ):
        if "sync_module_states" in spelled:
            done.removed.append(spelled["sync_module_states"])
        return
    implied = "" if "sync_module_states" in spelled else " (the launcher's default)"
    ram = spelled[RAM]
    done.remarks.append(
        Remark(
            spelled.get("sync_module_states", ram),
            "FM605",
            f"`sync_module_states: true`{implied} sent rank 0's weights to all ranks; Accelerate's FSDP2 does that only with "
            f"`{ram}: true`",
            f"set `{ram}: true`, or make sure that every rank builds the same weights (seeds, the same checkpoint)",
            remove="sync_module_states" in spelled,
            set_to=((ram, True),),
        )
    )


def _dropped(settings: Mapping[str, object], spelled: Mapping[str, str], done: Decisions) -> None:
    for key in (
        "backward_prefetch",
        "backward_prefetch_policy",
        "limit_all_gathers",
        "forward_prefetch",
        "use_orig_params",
    ):
        if key in spelled:
            done.removed.append(spelled[key])
    if truth(settings.get("forward_prefetch")) is True:
        done.note(
            spelled["forward_prefetch"],
            "FM607",
            "Accelerate's FSDP2 has no forward prefetch setting; results are the same, overlap may differ",
        )
    if truth(settings.get("use_orig_params")) is False:
        done.note(
            spelled["use_orig_params"],
            "FM607",
            "with `use_orig_params: false` optimizers saw flat parameters, so that settings by parameter name (no weight decay "
            "for biases and norms) had no effect; under FSDP2 they have",
        )


def _activation_checkpointing(
    settings: Mapping[str, object], spelled: Mapping[str, str], done: Decisions
) -> None:
    if truth(settings.get("activation_checkpointing")) is True:
        done.note(
            spelled["activation_checkpointing"],
            "FM608",
            "Accelerate's FSDP2 recomputes activations without restoring the random state (`preserve_rng_state=False`), FSDP1 "
            "restored it: with dropout in the checkpointed layers the gradients differ",
        )


def _precision(launch: Launch, done: Decisions) -> None:
    if launch.mixed_precision in ("fp16", "bf16", "fp8"):
        done.note(
            "",
            "FM607",
            f"with `mixed_precision: {launch.mixed_precision}` FSDP1 cast the model's buffers as well; under FSDP2 they keep "
            "their dtype",
        )
