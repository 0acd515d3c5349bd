"""`sharding_strategy`. Source: semantics measured on torch 2.13; `fully_shard(reshard_after_forward=)`."""

from __future__ import annotations

from codemods.rule import Finding, Literal, Named, code, finding, options
from codemods.shard_call import Argument, Inline, Translation, keyword, sibling

_NOTES = {
    "NO_SHARD": (
        "FM110",
        "NO_SHARD keeps every parameter on every rank, and FSDP2 a second copy of the weights",
        "torch.nn.parallel.DistributedDataParallel saves that copy, if mixed precision is not needed",
    ),
    "HYBRID_SHARD": (
        "FM119",
        "with one device per node FSDP1 does not average the gradients under HYBRID_SHARD (pytorch#154888)",
        "do not compare runs of one device per node with the rewritten program: FSDP2 averages them",
    ),
}


@keyword(
    "sharding_strategy",
    {"FM110": "NO_SHARD holds the weights twice", "FM119": "HYBRID_SHARD on one device per node"},
)
def sharding_strategy(argument: Argument) -> Translation:
    """`sharding_strategy` becomes a mesh and `reshard_after_forward`.

    FULL_SHARD: nothing is written; `fully_shard` keeps the root gathered after forward and reshards the
        units, as FSDP1 did (an explicit True would also reshard the root, one all-gather more per step from
        torch 2.8 on).
    SHARD_GRAD_OP: `reshard_after_forward=False` on units and root.
    HYBRID_SHARD, _HYBRID_SHARD_ZERO2: a named 2-D mesh, one sharding group per node unless a mesh is given.
    NO_SHARD: a named (world, 1) mesh, equal to the last bit and still with mixed precision.
        DistributedDataParallel would save one copy of the weights. Decided at run time: the helper module's
        `ShardingStrategy` has the same names, so configuration files stay.
    """
    strategies = {_strategy(value) for value in options(argument.value)}
    notes = tuple(_note(argument, name) for name in sorted(strategies) if name in _NOTES)
    if len(strategies) != 1:
        return Translation(inline=None, findings=notes)
    strategy = strategies.pop()
    hybrid_with_mesh = sibling(argument, "device_mesh") is not None
    if strategy in ("FULL_SHARD", "None") or (strategy == "HYBRID_SHARD" and hybrid_with_mesh):
        return Translation(inline=Inline(), findings=notes)
    if strategy == "SHARD_GRAD_OP" or (strategy == "_HYBRID_SHARD_ZERO2" and hybrid_with_mesh):
        return Translation(
            inline=Inline(every={"reshard_after_forward": code(None, "False")}), findings=notes
        )
    return Translation(inline=None, findings=notes)


def _note(argument: Argument, name: str) -> Finding:
    fm, message, remedy = _NOTES[name]
    return finding(argument.module, argument.node, fm, message, remedy=remedy, is_note=True)


def _strategy(value: object) -> str:
    if isinstance(value, Literal) and value.value is None:
        return "None"
    if isinstance(value, Named):
        head, _, member = value.symbol.name.rpartition(".")
        if head.endswith(".ShardingStrategy"):
            return member
    return ""
