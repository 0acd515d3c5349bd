"""`--mesh` and `--strategy`: what they come to for FSDP; pure."""

from __future__ import annotations

from math import prod

from fsdp_migrate.errors import UsageError

_SHARD = ("shard", "dp", "fsdp", "dp_shard")
_REPLICATE = ("replicate", "dp_replicate")
_OTHER = ("tp", "cp", "pp", "ep", "sp")


def sharding_of(mesh: str | None, world: int, strategy: str) -> tuple[int, str]:
    """Replicas, and the strategy within one of them.

    Args:
        mesh: `replicate=R,shard=S`; `dp` and other usual names are understood.
        strategy: FSDP1's name in lower case.

    Raises:
        UsageError: no such mesh, not of this many ranks, or not with this strategy.
    """
    sizes = {"shard": world, "replicate": 1} if mesh is None else _sizes(mesh)
    ranks = prod(sizes.values())
    if ranks != world:
        raise UsageError(
            f"--mesh {mesh} is of {ranks} ranks, and --world-size is {world}",
            hint="Let the sizes multiply to the world size.",
        )
    replicate = sizes["replicate"]
    if strategy == "hybrid_shard":
        if mesh is None:
            raise UsageError(
                "--strategy hybrid_shard: how many ranks share one copy is not said",
                hint="Say it as FSDP1 does by itself, one copy per node of 8 GPUs: "
                f"--mesh replicate={max(world // 8, 1)},shard={min(world, 8)}",
            )
        return replicate, "full_shard"
    if replicate > 1 and strategy == "no_shard":
        raise UsageError(
            f"--strategy no_shard replicates over all ranks, and --mesh {mesh} asks for shards",
            hint="Leave one of them out.",
        )
    return replicate, strategy


def _sizes(mesh: str) -> dict[str, int]:
    sizes = {"shard": 1, "replicate": 1}
    seen = set()
    for part in mesh.split(","):
        name, _, number = part.strip().partition("=")
        kind = "shard" if name in _SHARD else "replicate" if name in _REPLICATE else None
        if name in _OTHER:
            raise UsageError(
                f"--mesh {mesh}: {name} is not planned: which layers it cuts, and how, is the model's own "
                "code, and numbers without it would be guesses",
                hint="Plan the data-parallel part: a factory that builds what one rank of the others holds, "
                "and the --world-size of the ranks that share it.",
            )
        if kind is None or not number.isdecimal() or int(number) < 1 or kind in seen:
            raise UsageError(
                f"--mesh {mesh}: {part.strip() or 'an empty part'} is no dimension for FSDP, or there twice",
                hint="Write it as --mesh shard=64 or --mesh replicate=8,shard=8.",
            )
        seen.add(kind)
        sizes[kind] = int(number)
    return sizes
