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
from codemods.rule import Finding, Project, Safety, finding, rule


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
    """
    for module, call in plugin_calls(project):
        given = {keyword.arg: keyword for keyword in call.keywords if keyword.arg is not None}
        version = given.get("fsdp_version")
        if "state_dict_config" in given:
            message = "`state_dict_config` keeps FSDP1's type: Accelerate reads its fields under FSDP2 too"
            yield finding(module, given["state_dict_config"], "FM622", message, is_note=True)
        if version is not None and not (isinstance(version.value, ast.Constant) and version.value.value == 1):
            continue
        plugin = PluginCall(project, module, call, given)
        try:
            translate(plugin)
        except LeftToPerson as left:
            yield finding(module, call, "FM621", left.message, remedy=left.remedy)
            continue
        message = "the plugin becomes that of FSDP2"
        yield finding(module, call, "FM620", message, safety=Safety.SAFE, edits=plugin.edits)
        for keyword, message in plugin.notes:
            yield finding(module, keyword, "FM622", message, is_note=True)
