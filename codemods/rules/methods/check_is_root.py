"""Methods and attributes of the FSDP1 wrapper that have no public counterpart.

Source: `FullyShardedDataParallel`, `torch/distributed/fsdp/_common_utils.py` (`_FSDPState`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.rule import Finding, No, Project, finding, rule

_METHODS = {
    "check_is_root": "compare with the model you sharded: `module is model`",
    "apply": "random numbers filled into DTensors are other numbers: initialise before sharding, or check "
    "that the function sets constants",
}
_ATTRIBUTES = {
    "process_group": "keep the device mesh and use `mesh.get_group()`",
    "sharding_strategy": "keep what your configuration says; an FSDP2 model does not remember it",
    "mixed_precision": "keep what your configuration says; an FSDP2 model does not remember it",
    "compute_device": "use the mesh's device type or the device of an input",
    "rank": "keep the device mesh and use `mesh.get_local_rank()`",
    "world_size": "keep the device mesh and use `mesh.size()`",
    "training_state": "FSDP2 has no public training state",
    "_has_params": "every module given to `fully_shard` counts: test `isinstance(module, FSDPModule)`",
    "_is_root": "compare with the model you sharded: `module is model`",
}


@rule("check_is_root", {"FM310": "an attribute or method of the FSDP1 wrapper without counterpart"})
def check_is_root(project: Project) -> Iterator[Finding]:
    """Attributes and methods that only the FSDP1 wrapper had, used on a sharded model.

    `check_is_root()`, `process_group`, `sharding_strategy`, `mixed_precision`, `compute_device`, `rank`,
    `world_size` and a few private ones do not exist on an FSDP2 model. `apply(fn)` exists and sees DTensors
    where FSDP1 gave full parameters. Each is left to a person with what to use instead."""
    for module in list(project.modules.values()):
        for node in module.nodes(ast.Attribute):
            assert isinstance(node, ast.Attribute)
            remedy = _ATTRIBUTES.get(node.attr) or _METHODS.get(node.attr)
            if not remedy or not isinstance(node.ctx, ast.Load):
                continue
            if isinstance(project.sharded(module, node.value), No):
                continue
            what = "sees DTensors, not full parameters" if node.attr == "apply" else "does not exist"
            yield finding(module, node, "FM310", f"`.{node.attr}` of an FSDP2 model {what}", remedy=remedy)
