"""Wrappers of the same name from other libraries.

Source: fairscale `fairscale/nn/data_parallel/fully_sharded_data_parallel.py`, torch_xla
`torch_xla/distributed/fsdp`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.rule import Finding, Module, Project, finding, rule

_LIBRARIES = ("fairscale", "torch_xla")
_WRAPPERS = frozenset({"FullyShardedDataParallel", "XlaFullyShardedDataParallel"})


@rule("fairscale", {"FM533": "a wrapper of another library that is called like FSDP1's"})
def other_libraries(project: Project) -> Iterator[Finding]:
    """`FullyShardedDataParallel` of fairscale and of torch_xla is not PyTorch's, and is not translated.

    It came before PyTorch's and has other arguments (`mixed_precision=True`, `flatten_parameters`,
    `state_dict_device`), other methods and other files. Move such a program to PyTorch's `fully_shard` by
    hand; weights in the files of metaseq and fairscale are read by `fsdp-migrate convert-ckpt`.
    """
    for module in project.looked_at:
        first = next(_imports(module), None) if any(name in module.text for name in _LIBRARIES) else None
        if first is not None:
            library = (first.module or "").partition(".")[0]
            yield finding(
                module,
                first,
                "FM533",
                f"this wrapper is {library}'s, not PyTorch's: nothing that is done with it is translated",
                is_note=True,
            )


def _imports(module: Module) -> Iterator[ast.ImportFrom]:
    for node in module.nodes(ast.ImportFrom):
        assert isinstance(node, ast.ImportFrom)
        is_other = (node.module or "").partition(".")[0] in _LIBRARIES and not node.level
        if is_other and any(alias.name in _WRAPPERS for alias in node.names):
            yield node
