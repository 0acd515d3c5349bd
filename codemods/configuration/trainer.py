"""Transformers' FSDP settings: what `fsdp=...` and `fsdp_config` of FSDP1 become under FSDP2. Pure.

Source: transformers 5.24 `training_args.py::_process_fsdp_args`, `_apply_legacy_fsdp_to_config`; what the
FSDP1 forms meant: the same function in transformers 4.30 to 4.57.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from codemods.configuration.settings import STRATEGIES, Decisions, Remark, bare, number, strategy_named, truth

_STRATEGIES = frozenset(name.lower() for name in STRATEGIES)
WORDS = _STRATEGIES | {"offload", "auto_wrap"}
"""What `fsdp` may say (`transformers.trainer_utils.FSDPOption`)."""

ONLY_FSDP1 = frozenset(
    {"backward_prefetch", "forward_prefetch", "limit_all_gathers", "use_orig_params", "sync_module_states"}
)

FSDP2_KEYS = frozenset(
    {
        "version",
        "reshard_after_forward",
        "cpu_offload",
        "activation_checkpointing",
        "cpu_ram_efficient_loading",
        "state_dict_type",
        "auto_wrap_policy",
        "transformer_layer_cls_to_wrap",
        "min_num_params",
    }
)

XLA_KEYS = frozenset({"xla", "xla_fsdp_settings", "xla_fsdp_v2", "xla_fsdp_grad_ckpt"})

KNOWN = ONLY_FSDP1 | FSDP2_KEYS | XLA_KEYS

SMOOTHING = "label_smoothing_factor"
SMOOTHS = (
    "under FSDP2 Transformers does not shift the labels that it smooths: it asks for the name of the model's "
    "class, which `fully_shard` changes",
    "give the trainer a `compute_loss_func` that shifts and smooths, and drop this",
)
"""Message and remedy: `Trainer.compute_loss` looks the class's name up among those of causal models."""


def smooths(factor: object) -> bool:
    """Whether labels are smoothed, as far as the setting's text tells (None: it does not)."""
    try:
        return float(str(factor)) != 0
    except ValueError:
        return True


@dataclass(frozen=True, slots=True)
class Asked:
    """What an FSDP1 trainer was told outside its `fsdp_config`.

    Attributes:
        words: of `fsdp`, lower case.
        layer_classes: of the former argument `fsdp_transformer_layer_cls_to_wrap`.
        min_num_params: of the former argument `fsdp_min_num_params`.
    """

    words: frozenset[str]
    layer_classes: str | None = None
    min_num_params: int | None = None


def words_of(value: object) -> frozenset[str] | None:
    """The words of an `fsdp` setting of FSDP1; None where it is something else (a boolean, another
    program's)."""
    items = value.split() if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not items:
        return None
    words = [str(item).rpartition(".")[2].lower() for item in items]
    return frozenset(words) if set(words) <= WORDS else None


def is_trainer_config(keys: Mapping[str, object]) -> bool:
    """Whether a mapping is a trainer's `fsdp_config` for PyTorch (not XLA), and not FSDP2's yet."""
    settings = {bare(key): value for key, value in keys.items()}
    telling = (ONLY_FSDP1 | {"transformer_layer_cls_to_wrap"}) & set(
        settings
    ) or "fsdp_min_num_params" in keys
    return bool(telling) and set(settings) <= KNOWN and is_fsdp1(settings)


AXOLOTL = "axolotl (`fsdp_version: 2` at the top, names without `fsdp_` in `fsdp_config`)"
_OF_AXOLOTL = frozenset({"adapter", "datasets", "micro_batch_size", "num_epochs", "sequence_len"})
_OF_TRANSFORMERS = frozenset({"num_train_epochs", "per_device_train_batch_size"})


def is_axolotl(keys: Iterable[str]) -> bool:
    """Whether settings are axolotl's, which calls things as Transformers does and wants `fsdp` to be a
    list."""
    names = set(keys)
    return "base_model" in names and bool(names & _OF_AXOLOTL) and not names & _OF_TRANSFORMERS


def is_fsdp1(settings: Mapping[str, object]) -> bool:
    """Whether settings (bare names) are FSDP1's for PyTorch."""
    if truth(settings.get("xla")) is True or truth(settings.get("xla_fsdp_v2")) is True:
        return False
    return number(settings.get("version")) != 2


def to_fsdp2(written: Mapping[str, object], asked: Asked | None) -> Decisions:
    """Decide about every setting of an FSDP1 trainer.

    Args:
        written: the `fsdp_config` as it is written; empty where there is none.
        asked: None where `fsdp` stands in another file.
    """
    done = Decisions()
    settings = {bare(key): value for key, value in written.items()}
    spelled = {bare(key): key for key in written}
    prefix = "fsdp_" if any(key.startswith("fsdp_") for key in written) else ""
    if "version" in spelled:
        done.replaced[spelled["version"]] = (spelled["version"], 2)
    else:
        done.added.append((f"{prefix}version", 2))
    _layout(settings, spelled, asked, prefix, done)
    _units(settings, spelled, asked, prefix, done)
    if asked is not None and "offload" in asked.words and "cpu_offload" not in settings:
        done.added.append((f"{prefix}cpu_offload", True))
    if str(settings.get("state_dict_type", "")).upper() == "LOCAL_STATE_DICT":
        done.block(
            spelled["state_dict_type"],
            "FM611",
            "LOCAL_STATE_DICT (flat shards) does not exist under FSDP2",
            "use SHARDED_STATE_DICT or FULL_STATE_DICT, and convert the checkpoints with `fsdp-migrate "
            "convert-ckpt`",
        )
    _dropped(settings, spelled, done)
    return done


def _layout(
    settings: Mapping[str, object],
    spelled: Mapping[str, str],
    asked: Asked | None,
    prefix: str,
    done: Decisions,
) -> None:
    said = asked.words & _STRATEGIES if asked else frozenset()
    key = spelled.get("reshard_after_forward", "")
    strategy = strategy_named(settings["reshard_after_forward"]) if key else None
    if key and strategy is None and truth(settings["reshard_after_forward"]) is None:
        done.block(
            key,
            "FM611",
            f"`{key}` is no sharding strategy",
            "write true (FULL_SHARD) or false (SHARD_GRAD_OP)",
        )
        return
    if strategy is None and said:
        strategy = strategy_named(min(said))
    if len(said) > 1:
        done.block("", "FM611", f"several sharding strategies: {', '.join(sorted(said))}", "name one")
        return
    if asked is not None and not said and not key:
        done.block(
            "",
            "FM611",
            "`fsdp` names no sharding strategy: the FSDP1 trainer refused that",
            "add `full_shard` or `shard_grad_op`, and run again",
        )
    elif strategy in ("FULL_SHARD", "SHARD_GRAD_OP"):
        if key:
            done.replaced[key] = (key, strategy == "FULL_SHARD")
        elif said:
            done.added.append((f"{prefix}reshard_after_forward", strategy == "FULL_SHARD"))
    elif strategy is not None:
        done.block(key, "FM611", *_other_layout(strategy))


def _other_layout(strategy: str) -> tuple[str, str]:
    if strategy == "NO_SHARD":
        return (
            "`no_shard` keeps every parameter whole; the trainer's FSDP2 has no such layout",
            "remove `fsdp` and `fsdp_config`: DDP, the trainer's default, is the same layout",
        )
    return (
        f"`{strategy.lower()}` shards within each machine and replicates across machines; the trainer's "
        "FSDP2 takes that from "
        "`parallelism_config`, and the sizes are not said here",
        "set `fsdp=True`, `version: 2` in `fsdp_config`, and "
        "`parallelism_config=ParallelismConfig(dp_replicate_size=<machines>, dp_shard_size=<processes of "
        "one machine>)`",
    )


def _units(
    settings: Mapping[str, object],
    spelled: Mapping[str, str],
    asked: Asked | None,
    prefix: str,
    done: Decisions,
) -> None:
    """FSDP1 wrapped only with `auto_wrap`, by size where `min_num_params` was set; FSDP2 wraps by class
    unless told."""
    smallest = number(settings.get("min_num_params", asked.min_num_params if asked else None)) or 0
    if (
        asked is not None
        and asked.layer_classes is not None
        and "transformer_layer_cls_to_wrap" not in settings
    ):
        names = [name.strip() for name in asked.layer_classes.split(",") if name.strip()]
        done.added.append((f"{prefix}transformer_layer_cls_to_wrap", names))
    if "auto_wrap_policy" in settings:
        return
    if asked is not None and "auto_wrap" not in asked.words:
        done.added.append((f"{prefix}auto_wrap_policy", "NO_WRAP"))
    elif smallest > 0:
        done.added.append((f"{prefix}auto_wrap_policy", "SIZE_BASED_WRAP"))
        if "min_num_params" not in settings:
            done.added.append((f"{prefix}min_num_params", smallest))
        done.note(
            spelled.get("min_num_params", ""),
            "FM613",
            "units chosen by size differ under FSDP2: all parameters of a module count, under FSDP1 those "
            "not yet wrapped; "
            "naming the layer classes gives the same units",
        )


def _dropped(settings: Mapping[str, object], spelled: Mapping[str, str], done: Decisions) -> None:
    done.removed += [spelled[key] for key in settings if key in ONLY_FSDP1]
    explicit = truth(settings.get("sync_module_states")) is True
    if explicit and truth(settings.get("cpu_ram_efficient_loading")) is not True:
        done.remarks.append(
            Remark(
                spelled["sync_module_states"],
                "FM613",
                "`sync_module_states` sent rank 0's weights to all ranks; the trainer's FSDP2 does that "
                "only with "
                "`cpu_ram_efficient_loading: true`. Ranks that build the model from the same checkpoint and "
                "seed start equal",
                is_note=True,
            )
        )
    if truth(settings.get("use_orig_params")) is False:
        done.note(
            spelled["use_orig_params"],
            "FM613",
            "with `use_orig_params: false` the optimizer saw flat parameters, so that no parameter was left "
            "out of weight decay "
            "by its name; under FSDP2 biases and norms are",
        )
    if truth(settings.get("activation_checkpointing")) is True:
        done.note(
            spelled["activation_checkpointing"],
            "FM613",
            "Accelerate's FSDP2 recomputes activations without restoring the random state, FSDP1 restored "
            "it: with dropout in "
            "the checkpointed layers the gradients differ",
        )


def beyond_defaults(done: Decisions) -> str:
    """Settings that have to be written because FSDP2's defaults differ, as JSON text; empty if there are
    none."""
    defaults = {"version": 2, "reshard_after_forward": True}
    needed = {k: v for k, v in done.added if bare(k) not in defaults or defaults[bare(k)] != v}
    return ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in needed.items())
