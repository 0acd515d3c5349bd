"""Whether a project shards layers over tensor-parallel ranks: gradients then lie on several meshes.

Source: `torch/distributed/tensor/parallel/api.py` (`parallelize_module`).
"""

from __future__ import annotations

from codemods.project import Project

_CALLS = (
    "torch.distributed.tensor.parallel.parallelize_module",
    "torch.distributed.tensor.parallel.api.parallelize_module",
    "torch.distributed.tensor.distribute_module",
)


def is_tensor_parallel(project: Project, path: str) -> bool:
    """Whether `parallelize_module` or `distribute_module` is called in what a file is a part of."""
    calls = (module for name in _CALLS for module, _ in project.calls_of(name))
    return any(project.group(module.path) == project.group(path) for module in calls)
