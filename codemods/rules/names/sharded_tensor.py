"""`ShardedTensor`, what FSDP1's sharded state dicts held.

Source: `torch/distributed/_shard/sharded_tensor/api.py`; `torch/distributed/fsdp/_state_dict_utils.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from codemods.analysis.class_questions import classes_of
from codemods.rule import Finding, Module, Project, finding, rule
from codemods.torch_names import FSDP

_NAMES = (
    "torch.distributed._shard.sharded_tensor.ShardedTensor",
    "torch.distributed._shard.sharded_tensor.api.ShardedTensor",
)
_DTENSOR = "DTensor"


@rule("ShardedTensor", {"FM534": "a question for the tensors of FSDP1's sharded state dicts"})
def sharded_tensor(project: Project) -> Iterator[Finding]:
    """`isinstance(value, ShardedTensor)` finds nothing in a state dict of an FSDP2 model.

    Without a device mesh FSDP1's sharded state dicts hold `ShardedTensor`s; FSDP2's hold `DTensor`s. Code
    that takes the one apart (`local_shards()`, `metadata()`) has to take the other apart as well:
    `to_local()`, `device_mesh`, `placements`, or `full_tensor()` for the whole value. It goes on being right
    for files that FSDP1 wrote. Of a file only the first place is told, and nothing where `DTensor` is asked
    for in the same function, nor in files that do not speak of FSDP where the project makes `ShardedTensor`s
    of its own: tables of embeddings, say.
    """
    if not project.wraps and not project.uses(FSDP):
        return
    told: set[Module] = set()
    own = _makes_its_own(project)
    for use in (use for name in _NAMES for use in project.uses(name)):
        module, question = use.module, use.module.parent(use.node)
        while isinstance(question, ast.Tuple | ast.BinOp):
            question = module.parent(question)
        if module in told or not _asks(question) or _asks_for_dtensor(module, use.node):
            continue
        if own and not module.says_fsdp:
            continue
        told.add(module)
        yield finding(
            module,
            use.node,
            "FM534",
            "FSDP2's sharded state dicts hold `DTensor`s, where FSDP1's held `ShardedTensor`s",
            remedy="take `DTensor` apart as well (`to_local()`, `full_tensor()`) where state dicts of the "
            "rewritten program come by",
        )


def _makes_its_own(project: Project) -> bool:
    """Whether the project makes such tensors: `ShardedTensor._init_from_local_shards(...)`."""
    made = [use for name in _NAMES for use in project.uses(name)]
    parents = [use.module.parent(use.node) for use in made]
    return any(isinstance(parent, ast.Attribute) and parent.attr.startswith("_init") for parent in parents)


def _asks(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance"


def _asks_for_dtensor(module: Module, node: ast.AST) -> bool:
    """Whether the function around a question asks for DTensors too."""
    function = module.function(node) or module.tree
    return any(
        ast.unparse(one).rpartition(".")[2] == _DTENSOR
        for call in ast.walk(function)
        if _asks(call) and isinstance(call, ast.Call) and len(call.args) == 2
        for one in classes_of(call.args[1])
    )
