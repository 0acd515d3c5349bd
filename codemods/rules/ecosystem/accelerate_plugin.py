"""`FullyShardedDataParallelPlugin(...)` of Accelerate in Python.

Source: accelerate 1.15 `utils/dataclasses.py::FullyShardedDataParallelPlugin.__post_init__`,
`utils/fsdp_utils.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.analysis.library_calls import plugin_calls
from codemods.editing.accelerate_plugin import translate
from codemods.editing.plugin_types import LeftToPerson, PluginCall
from codemods.rule import Finding, Module, Project, Safety, finding, rule


@rule(
    "FullyShardedDataParallelPlugin",
    {
        "FM620": "Accelerate's plugin becomes FSDP2's",
        "FM621": "an argument of Accelerate's plugin that needs a person",
        "FM622": "an argument of Accelerate's plugin whose effect ends",
    },
    order=20,
)
def accelerate_plugin(project: Project) -> Iterator[Finding]:
    """`FullyShardedDataParallelPlugin(...)` becomes the plugin of `fsdp_version=2`, with the same layout and
    state dicts.

    - `sharding_strategy` becomes `reshard_after_forward=True` or `False`; hybrid sharding (it needs
      `ParallelismConfig(dp_replicate_size=..., dp_shard_size=...)` in `Accelerator(...)`) and NO_SHARD are
      left to you.
    - `state_dict_type` is written out where it is missing: its default changes from full to sharded.
    - `MixedPrecision` becomes `MixedPrecisionPolicy`, `CPUOffload(offload_params=x)` becomes `x`.
    - A policy made with `transformer_auto_wrap_policy` becomes `"transformer_based_wrap"` with the names of
      its classes: Accelerate's FSDP2 reads no other policy object, and would make one single unit of the
      model without a word.
    - `backward_prefetch`, `limit_all_gathers`, `use_orig_params`, `sync_module_states`, `forward_prefetch`
      and `optim_state_dict_config` go. `state_dict_config` stays: Accelerate reads its fields under FSDP2
      too.
    - Arguments in variables of their own, in `**{...}`, and in a dictionary of the same file that is used
      for nothing else are translated where they are written.
    """
    for module, call in plugin_calls(project):
        table = _table(project, module, call)
        if isinstance(table, ast.Call):
            call, table = table, None
        given = {keyword.arg: keyword for keyword in call.keywords if keyword.arg is not None}
        if table is not None:
            given = _items(table)
        version = given.get("fsdp_version")
        if "state_dict_config" in given:
            message = "`state_dict_config` keeps FSDP1's type: Accelerate reads its fields under FSDP2 too"
            yield finding(module, given["state_dict_config"], "FM622", message, is_note=True)
        if version is not None and not (isinstance(version.value, ast.Constant) and version.value.value == 1):
            continue
        plugin = PluginCall(project, module, call, given, table=table)
        try:
            translate(plugin)
        except LeftToPerson as left:
            yield finding(module, call, "FM621", left.message, remedy=left.remedy)
            continue
        message = "the plugin becomes that of FSDP2"
        yield finding(module, call, "FM620", message, safety=Safety.SAFE, edits=plugin.edits)
        for keyword, message in plugin.notes:
            yield finding(module, keyword, "FM622", message, is_note=True)
        for keyword in _precision(project, module) if "mixed_precision_policy" not in given else ():
            message = "FSDP1 cast the model's buffers as well; under FSDP2 they keep their dtype"
            yield finding(module, keyword, "FM622", message, is_note=True)


def _precision(project: Project, module: Module) -> Iterator[ast.keyword]:
    """`mixed_precision="bf16"` of a file's `Accelerator`, from which a plugin takes its own."""
    for call in module.called("Accelerator"):
        symbol = project.resolve(module, call.func)
        for keyword in call.keywords if symbol is not None and symbol.name.startswith("accelerate.") else ():
            is_told = keyword.arg == "mixed_precision" and isinstance(keyword.value, ast.Constant)
            if is_told and ast.literal_eval(keyword.value) in ("fp16", "bf16", "fp8"):
                yield keyword


def _table(project: Project, module: Module, call: ast.Call) -> ast.Dict | ast.Call | None:
    """The dictionary, or `dict(...)`, whose items are all of a call's arguments; nothing else may use it."""
    if call.args or len(call.keywords) != 1 or call.keywords[0].arg is not None:
        return None
    given = call.keywords[0].value
    if isinstance(given, ast.Name):
        found = module.scope_of(given).lookup(given.id)
        uses = [n for n in module.nodes(ast.Name) if isinstance(n, ast.Name) and n.id == given.id]
        if found is None or len(found[1]) != 1 or found[1][0].value is None or len(uses) != 2:
            return None
        given = found[1][0].value
    if isinstance(given, ast.Dict):
        is_plain = all(isinstance(key, ast.Constant) and isinstance(key.value, str) for key in given.keys)
        return given if is_plain and len(_items(given)) == len(given.keys) else None
    is_dict = isinstance(given, ast.Call) and getattr(given.func, "id", "") == "dict" and not given.args
    return given if isinstance(given, ast.Call) and is_dict else None


def _items(table: ast.Dict) -> dict[str, ast.keyword]:
    """The items of a dictionary as the keyword arguments that they become."""
    found = {}
    for key, value in zip(table.keys, table.values, strict=True):
        if isinstance(key, ast.Constant):
            keyword = ast.keyword(str(key.value), value)
            ast.copy_location(keyword, key)
            keyword.end_lineno, keyword.end_col_offset = value.end_lineno, value.end_col_offset
            found[str(key.value)] = keyword
    return found
