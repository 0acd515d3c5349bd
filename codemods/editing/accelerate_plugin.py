"""The arguments of Accelerate's `FullyShardedDataParallelPlugin` under `fsdp_version=2`, as edits of one
call.

Source: accelerate 1.15 `utils/dataclasses.py::FullyShardedDataParallelPlugin.__post_init__`,
`utils/fsdp_utils.py`.
"""

from __future__ import annotations

import ast

from codemods.analysis.values import CallValue, Literal, Named, Opaque, Value
from codemods.configuration.settings import strategy_named
from codemods.editing.code import code, delete, insert_text
from codemods.editing.plugin_types import LeftToPerson, PluginCall, is_within, policy, precision
from codemods.editing.removal import delete_arguments, delete_dict_items
from codemods.model import Edit, Span

GONE = (
    "backward_prefetch",
    "limit_all_gathers",
    "use_orig_params",
    "sync_module_states",
    "forward_prefetch",
    "optim_state_dict_config",
)
"""Arguments that FSDP2's plugin does not read, or refuses."""

KEPT = (
    "fsdp_version",
    "ignored_modules",
    "state_dict_config",
    "activation_checkpointing",
    "activation_checkpointing_offload",
    "cpu_ram_efficient_loading",
    "transformer_cls_names_to_wrap",
    "min_num_params",
)
"""Arguments that mean the same under both versions."""

DECIDED = (
    "sharding_strategy",
    "reshard_after_forward",
    "state_dict_type",
    "cpu_offload",
    "mixed_precision_policy",
    "auto_wrap_policy",
    "param_init_fn",
)
"""Arguments that are translated, each by a function below."""


def translate(plugin: PluginCall) -> None:
    """Fill in the edits and notes of a call.

    Raises:
        LeftToPerson: it has to stay as it is.
    """
    if plugin.table is None and (plugin.call.args or len(plugin.given) != len(plugin.call.keywords)):
        raise LeftToPerson(
            "the plugin's arguments are not all named here",
            "name them, or set `fsdp_version=2` and `reshard_after_forward=True` (False for SHARD_GRAD_OP) "
            "where they are made",
        )
    if "fsdp_version" in plugin.given:
        plugin.put("fsdp_version", ("2",))
    else:
        plugin.added.append("fsdp_version=2")
    _layout(plugin)
    _state_dict_type(plugin)
    _offload(plugin)
    precision(plugin)
    policy(plugin)
    _dropped(plugin)
    _settle(plugin)


def _settle(plugin: PluginCall) -> None:
    """Remove what goes and add what is new, before the first argument that stays; all anew where none
    does."""
    module, call = plugin.module, plugin.call
    gone = [*plugin.deleted, *(plugin.given[name] for name in GONE if name in plugin.given)]
    kept = [keyword for keyword in plugin.given.values() if keyword not in gone]
    added = [plugin.written(argument) for argument in plugin.added]
    if not kept:
        span, text = Span(module.span(call.func).end, module.span(call).end), f"({', '.join(added)})"
        if plugin.table is not None:
            span, text = module.span(plugin.table), f"{{{', '.join(added)}}}"
        outside = [edit for edit in plugin.edits if not span.holds(edit.span)]
        plugin.edits = [*outside, Edit(module.path, span, (text,))]
        return
    if plugin.table is not None:
        values = [keyword.value for keyword in gone]
        positions = [i for i, value in enumerate(plugin.table.values) if value in values]
        plugin.edits += delete_dict_items(module, plugin.table, positions)
    else:
        plugin.edits += delete_arguments(module, call, gone)
    if added:
        start = module.span(kept[0]).start
        line = module.text[module.line_start(start) : start]
        separator = f",\n{line}" if not line.strip() else ", "
        plugin.edits.append(insert_text(module, kept[0], separator.join(added) + separator))


def _layout(plugin: PluginCall) -> None:
    both = plugin.given.get("reshard_after_forward")
    if "sharding_strategy" not in plugin.given:
        if both is not None:
            _unread_layout(plugin, both)
        return
    if both is not None:
        plugin.deleted.append(both)
    said = _name_of(plugin.value("sharding_strategy"))
    strategy = strategy_named(said) if said is not None else None
    if strategy is None:
        raise LeftToPerson(
            "`sharding_strategy` is decided at run time",
            "set `fsdp_version=2` and `reshard_after_forward=` True for FULL_SHARD, False for SHARD_GRAD_OP",
        )
    if strategy.startswith("HYBRID"):
        raise LeftToPerson(
            f"`{strategy}` needs the sizes of a mesh under FSDP2",
            "set `fsdp_version=2`, `reshard_after_forward=` True (False for _HYBRID_SHARD_ZERO2) and give "
            "`Accelerator` a "
            "`ParallelismConfig(dp_replicate_size=<machines>, dp_shard_size=<processes of one machine>)`",
        )
    if strategy == "NO_SHARD":
        raise LeftToPerson(
            "`NO_SHARD` keeps every parameter whole; Accelerate's FSDP2 has no such layout",
            "leave the plugin out: DDP, Accelerate's default, is the same layout",
        )
    plugin.rename("sharding_strategy", "reshard_after_forward", str(strategy == "FULL_SHARD"))
    definition = plugin.sole_definition("sharding_strategy")
    if definition is not None:
        plugin.edits.append(delete(plugin.module, definition))


def _unread_layout(plugin: PluginCall, keyword: ast.keyword) -> None:
    """Version 1 never read `reshard_after_forward`: its strategy came from the environment, or was
    FULL_SHARD."""
    said = _name_of(plugin.value("reshard_after_forward"))
    plugin.put("reshard_after_forward", ("True",))
    if said is None or strategy_named(said) != "FULL_SHARD":
        message = (
            "version 1 of the plugin did not read `reshard_after_forward`: FULL_SHARD was in force, and stays"
        )
        plugin.notes.append((keyword, message))


def _name_of(value: Value) -> str | None:
    """The name or string that a value is: an enum member or its spelling."""
    match value:
        case Literal():
            said = value.value
            return str(said) if isinstance(said, str | int) and not isinstance(said, bool) else None
        case Named():
            return value.symbol.name
        case Opaque():
            text = ast.unparse(value.origin.node)
            return text if "." in text else None
    return None


def _state_dict_type(plugin: PluginCall) -> None:
    if "state_dict_type" not in plugin.given:
        plugin.added.append('state_dict_type="FULL_STATE_DICT"')
        return
    said = _name_of(plugin.value("state_dict_type"))
    kind = said.upper().rpartition(".")[2] if said else ""
    if kind == "LOCAL_STATE_DICT":
        raise LeftToPerson(
            "LOCAL_STATE_DICT (flat shards) does not exist under FSDP2",
            'use `state_dict_type="SHARDED_STATE_DICT"`, and convert the checkpoints with '
            "`fsdp-migrate convert-ckpt`",
        )
    is_text = isinstance(plugin.given["state_dict_type"].value, ast.Constant)
    if kind in ("FULL_STATE_DICT", "SHARDED_STATE_DICT") and not is_text:
        plugin.put("state_dict_type", (f'"{kind}"',))


def _offload(plugin: PluginCall) -> None:
    if "cpu_offload" not in plugin.given:
        return
    value = plugin.value("cpu_offload")
    if isinstance(value, Literal):
        return
    if not isinstance(value, CallValue) or not value.function.name.endswith(".CPUOffload"):
        raise LeftToPerson(
            "`cpu_offload` is decided elsewhere", "give it a boolean, and set `fsdp_version=2`"
        )
    inner = value.keywords.get("offload_params", value.arguments[0] if value.arguments else None)
    if value.spreads or not is_within(plugin, "cpu_offload", value.origin.node):
        raise LeftToPerson(
            "`CPUOffload` is made elsewhere", "give `cpu_offload` a boolean, and set `fsdp_version=2`"
        )
    plugin.put("cpu_offload", ("False",) if inner is None else code(plugin.module, "{inner}", inner=inner))


def _dropped(plugin: PluginCall) -> None:
    given = plugin.given
    if "param_init_fn" in given:
        raise LeftToPerson(
            "`param_init_fn` is not called under FSDP2",
            "build the model with its weights (or on the meta device with "
            "`cpu_ram_efficient_loading=True`), and "
            "remove it",
        )
    sync = given.get("sync_module_states")
    sends = sync is not None and not _is(given, "sync_module_states", False)
    if sync is not None and sends and not _is(given, "cpu_ram_efficient_loading", True):
        message = (
            "rank 0's weights went to all ranks; Accelerate's FSDP2 does that only with "
            "`cpu_ram_efficient_loading=True`"
        )
        plugin.notes.append((sync, message))
    if "optim_state_dict_config" in given:
        message = "Accelerate's FSDP2 saves optimizers as `state_dict_config` says"
        plugin.notes.append((given["optim_state_dict_config"], message))
    if _is(given, "use_orig_params", False):
        message = "optimizers now see the original parameters, and their names"
        plugin.notes.append((given["use_orig_params"], message))


def _is(given: dict[str, ast.keyword], name: str, value: bool) -> bool:
    """Whether an argument is written as this boolean."""
    node = given[name].value if name in given else None
    return isinstance(node, ast.Constant) and node.value is value
