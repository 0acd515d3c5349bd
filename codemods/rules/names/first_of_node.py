"""Whole state dicts for the first rank of each sharding group.

Source: `torch/distributed/fsdp/_state_dict_utils.py` (`rank0_only` asks for the rank within the wrapper's own
group), `torch/distributed/checkpoint/state_dict.py` (`cpu_offload` means rank 0 of all)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from codemods.rule import Finding, Literal, Module, Named, Project, WrapCall, finding, options, rule
from codemods.wrap_site import arguments_of

_FIRST_OF_NODE = re.compile(r"local_rank\S* == 0\b|\bnot \S*local_rank\b(?! is)|is_local_main")
_MESSAGE = (
    "under HYBRID_SHARD the first rank of every node got what `rank0_only` gives to one rank; now only "
    "global rank 0 gets it"
)
_REMEDY = "let rank 0 use it, or drop `rank0_only` where one rank of every node needs it"
_CONFIGURATION = "torch.distributed.fsdp.FullStateDictConfig"


@rule("rank0_only", {"FM413": "`rank0_only` under HYBRID_SHARD was about one rank of every node"})
def first_of_node(project: Project) -> Iterator[Finding]:
    """`FullStateDictConfig(rank0_only=True)` gives whole tensors to rank 0 of all ranks, also under
    HYBRID_SHARD.

    FSDP1 asked for the rank within the group that shards, so that under HYBRID_SHARD one rank of every node
    got a whole state dict, and `if local_rank == 0: torch.save(state, path)` wrote a file on each; now only
    rank 0 has something to write, and the others write an empty dict. Noted once where the strategy
    is HYBRID_SHARD, and wherever it can be and the file asks for the rank within the node; where both hold,
    it is for a person.
    """
    strategies = {name for site in project.wraps for name in _strategies(project, site)}
    is_hybrid = any("HYBRID" in name for name in strategies)
    if not is_hybrid and "" not in strategies:
        return
    calls = [*project.calls_of(_CONFIGURATION)]
    calls += [(call.module, call.node) for call in project.static_calls("summon_full_params")]
    is_said = False
    for module, call in calls:
        told = next((k.value for k in call.keywords if k.arg == "rank0_only"), None)
        is_true = isinstance(told, ast.Constant) and told.value is True
        by_node = is_true and _asks_for_local_rank(module)
        if by_node or (is_true and is_hybrid and not is_said):
            is_certain = is_hybrid and by_node
            is_said |= not by_node
            yield finding(module, call, "FM413", _MESSAGE, remedy=_REMEDY, is_note=not is_certain)


def _strategies(project: Project, site: WrapCall) -> set[str]:
    """The names of the strategies that a wrap can be given; empty for one that is not known."""
    arguments, unknown = arguments_of(project, site)
    given = [a.value for a in arguments if a.name == "sharding_strategy"]
    found = {""} if unknown and not given else set()
    for value in (value for each in given for value in options(each)):
        if isinstance(value, Named):
            found.add(value.symbol.name.rpartition(".")[2])
        elif not isinstance(value, Literal):
            found.add("")
    return found


def _asks_for_local_rank(module: Module) -> bool:
    """Whether a condition of a file is about the first rank of a node: `local_rank == 0`."""
    tests = (node.test for node in module.nodes(ast.If) if isinstance(node, ast.If))
    return any(_FIRST_OF_NODE.search(ast.unparse(test).lower()) for test in tests)
