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


def is_tensor_parallel(project: Project) -> bool:
    """Whether `parallelize_module` or `distribute_module` is called anywhere."""
    return any(True for name in _CALLS for _ in project.calls_of(name))
