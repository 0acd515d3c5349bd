"""Wrappers of other libraries: of the same name as FSDP1's, or around it.

Source: fairscale `fairscale/nn/data_parallel/fully_sharded_data_parallel.py`, torch_xla
`torch_xla/distributed/fsdp`, torchtnt `torchtnt/utils/prepare_module.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.rule import Finding, Module, Project, finding, rule

_LIBRARIES = ("fairscale", "torch_xla")
_WRAPPERS = frozenset({"FullyShardedDataParallel", "XlaFullyShardedDataParallel"})
_OF_TORCHTNT = frozenset({"FSDPStrategy", "prepare_fsdp"})


@rule(
    "fairscale",
    {"FM533": "a wrapper of another library that is called like FSDP1's, or wraps with it"},
    where={b"torchtnt": rb"\b(FSDPStrategy|prepare_fsdp)\b"},
)
def other_libraries(project: Project) -> Iterator[Finding]:
    """`FullyShardedDataParallel` of fairscale and of torch_xla is not PyTorch's, and is not translated.

    It came before PyTorch's and has other arguments (`mixed_precision=True`, `flatten_parameters`,
    `state_dict_device`), other methods and other files. Move such a program to PyTorch's `fully_shard` by
    hand; weights in the files of metaseq and fairscale are read by `fsdp-migrate convert-ckpt`.

    torchtnt's `FSDPStrategy` and `prepare_fsdp` wrap with PyTorch's FSDP1 inside of that library, which has
    `FSDP2Strategy` and `prepare_fsdp2` beside them: change to these by hand, as their arguments differ.
    """
    yield from _of_torchtnt(project)
    for module in project.looked_at:
        is_meant = any(name in module.text for name in _LIBRARIES)
        first = next(_imports(module, _LIBRARIES, _WRAPPERS), None) if is_meant else None
        if first is not None:
            library = (first.module or "").partition(".")[0]
            yield finding(
                module,
                first,
                "FM533",
                f"this wrapper is {library}'s, not PyTorch's: nothing that is done with it is translated",
                is_note=True,
            )


def _of_torchtnt(project: Project) -> Iterator[Finding]:
    """Where torchtnt's names are imported; within torchtnt itself the wrap is seen."""
    if any("torchtnt" in path.split("/") for path in project.modules):
        return
    for module in project.reading(*_OF_TORCHTNT):
        for node in _imports(module, ("torchtnt",), _OF_TORCHTNT):
            names = [f"`{alias.name}`" for alias in node.names if alias.name in _OF_TORCHTNT]
            yield finding(
                module,
                node,
                "FM533",
                f"{' and '.join(names)} of torchtnt wrap{'s' * (len(names) == 1)} models with FSDP1",
                remedy="use its `FSDP2Strategy` or `prepare_fsdp2`, which have other arguments, and see "
                "to what is done with the model as for `fully_shard`",
            )


def _imports(module: Module, libraries: tuple[str, ...], names: frozenset[str]) -> Iterator[ast.ImportFrom]:
    for node in module.nodes(ast.ImportFrom):
        assert isinstance(node, ast.ImportFrom)
        is_other = (node.module or "").partition(".")[0] in libraries and not node.level
        if is_other and any(alias.name in names for alias in node.names):
            yield node
