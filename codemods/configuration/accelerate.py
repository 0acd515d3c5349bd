"""Accelerate's FSDP settings: what each becomes under `fsdp_version: 2`. Pure.

Source: accelerate 1.15, `commands/launch.py` (defaults of the launcher), `utils/launch.py` (settings to
environment), `utils/dataclasses.py::FullyShardedDataParallelPlugin`, `utils/fsdp_utils.py`
(`fsdp2_prepare_model`, `fsdp2_apply_ac`), `parallelism_config.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from codemods.configuration.accelerate_layout import Launch, layout
from codemods.configuration.settings import Decisions, Remark, bare, number, truth

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
    layout(settings, spelled, launch, done)
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
                f"`{spelled[key]}` is no FSDP setting of accelerate 1.x that is known here; it is kept as "
                "it is",
            )
    if "version" in spelled:
        done.replaced[spelled["version"]] = (spelled["version"], 2)
    else:
        done.added.append((f"{launch.prefix}version", 2))
    return done


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
            "SIZE_BASED_WRAP makes other units under FSDP2: Accelerate counts all parameters of a module, "
            "FSDP1 those not "
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
            f"`sync_module_states: true`{implied} sent rank 0's weights to all ranks; Accelerate's FSDP2 "
            "does that only with "
            f"`{ram}: true`",
            f"set `{ram}: true`, or make sure that every rank builds the same weights (seeds, the same "
            "checkpoint)",
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
            "with `use_orig_params: false` optimizers saw flat parameters, so that settings by parameter "
            "name (no weight decay "
            "for biases and norms) had no effect; under FSDP2 they have",
        )


def _activation_checkpointing(
    settings: Mapping[str, object], spelled: Mapping[str, str], done: Decisions
) -> None:
    if truth(settings.get("activation_checkpointing")) is True:
        done.note(
            spelled["activation_checkpointing"],
            "FM608",
            "Accelerate's FSDP2 recomputes activations without restoring the random state "
            "(`preserve_rng_state=False`), FSDP1 "
            "restored it: with dropout in the checkpointed layers the gradients differ",
        )


def _precision(launch: Launch, done: Decisions) -> None:
    if launch.mixed_precision in ("fp16", "bf16", "fp8"):
        done.note(
            "",
            "FM607",
            f"with `mixed_precision: {launch.mixed_precision}` FSDP1 cast the model's buffers as well; "
            "under FSDP2 they keep "
            "their dtype",
        )
