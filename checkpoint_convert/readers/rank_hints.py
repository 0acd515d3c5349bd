"""What a file tells of its rank by the way: its job's own `rank`, the seed of its generators, and the device
that its tensors lay on.

None of them is a rank that torch wrote, so none puts files in order. But where every rank is told once, it
confirms the order that names or the command line say, or contradicts it. The devices of several nodes, which
repeat, only contradict: two nodes' files may have changed places.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from checkpoint_convert.errors import IncompleteError
from checkpoint_convert.model import DType, Opaque
from checkpoint_convert.plain_values import walk
from checkpoint_convert.readers.holdings import Holding
from checkpoint_convert.stored_tensor import StoredTensor

RANK_NAMES = frozenset({"rank", "global_rank"})
"""What a job calls its rank among its own values and arguments; not `local_rank`, which nodes repeat."""

_GENERATOR_BYTES = 5056
"""Bytes of the state of torch's CPU generator (`aten/src/ATen/CPUGeneratorImpl.cpp`)."""

_DEVICE = re.compile(r"[a-z]+:(\d+)")


def in_order(holdings: Sequence[Holding], where: str) -> bool:
    """Hold an order of ranks' files against what they tell by the way.

    Args:
        holdings: in the order that names or the command line say.

    Returns:
        Whether something tells it; False where nothing does.

    Raises:
        IncompleteError: it tells another order.
    """
    for told, tell, says in _TOLD:
        ranks = tell(holdings)
        if not _is_each_once(ranks):
            continue
        wrong = next((at for at, rank in enumerate(ranks) if at != rank), None)
        if wrong is None:
            return True
        raise IncompleteError(
            f"{where}: the ranks' files are not in order: {holdings[wrong].path} is taken for rank {wrong}, "
            f"and {told} {ranks[wrong]}",
            hint=f"By that their order is {_named(holdings, ranks)}: number their names, or list them, so. "
            f"If the job did count otherwise, save each again without what {says}.",
        )
    _check_nodes(holdings, where)
    return False


def _check_nodes(holdings: Sequence[Holding], where: str) -> None:
    """The devices of several nodes come one node after another, or the first of all nodes, then the second.

    Raises:
        IncompleteError: they come otherwise.
    """
    devices = _devices(holdings)
    count = len(set(devices))
    nodes = len(devices) // max(count, 1)
    ordered = [number for number in range(count) for _ in range(nodes)]
    if nodes < 2 or None in devices or sorted(device or 0 for device in devices) != ordered:
        return
    if devices not in (ordered, list(range(count)) * nodes):
        listed = ", ".join(f"{one.path.name}: {at}" for one, at in zip(holdings, devices, strict=True))
        raise IncompleteError(
            f"{where}: the ranks' files are not in order, by their tensors' devices ({listed})",
            hint="Each file must be of the rank that its name or its place on the command line says. If the "
            "job did count otherwise, save each again without its device (map_location='cpu').",
        )


def suggested(holdings: Sequence[Holding]) -> str:
    """The order that files without numbers tell by the way, as a sentence; empty where they tell none."""
    for told, tell, _ in _TOLD:
        ranks = tell(holdings)
        if _is_each_once(ranks):
            return f" By what they hold ({told} 0, 1, ...) it is {_named(holdings, ranks)}."
    return ""


def _is_each_once(ranks: Sequence[int | None]) -> bool:
    return sorted(rank for rank in ranks if rank is not None) == list(range(len(ranks)))


def _named(holdings: Sequence[Holding], ranks: Sequence[int | None]) -> str:
    by_rank = {rank: holding.path.name for rank, holding in zip(ranks, holdings, strict=True)}
    return ", ".join(by_rank[rank] for rank in range(len(holdings)))


def _own_ranks(holdings: Sequence[Holding]) -> list[int | None]:
    return [_own_rank(holding) for holding in holdings]


def _devices(holdings: Sequence[Holding]) -> list[int | None]:
    return [_device(holding) for holding in holdings]


def _seeds(holdings: Sequence[Holding]) -> list[int | None]:
    """The place of each generator's seed among all, where they are `seed + rank` of a job."""
    found = [dict(_generators(holding)) for holding in holdings]
    for path in found[0]:
        seeds = [one[path] for one in found if path in one]
        ranks: list[int | None] = [seed - min(seeds) for seed in seeds]
        if len(ranks) == len(holdings) and _is_each_once(ranks):
            return ranks
    return [None]


def _generators(holding: Holding) -> Iterator[tuple[object, int]]:
    """The seed of each generator of torch's for the CPU, with which what `get_rng_state` gives begins."""
    for path, leaf in walk(dict(holding.extras)):
        if isinstance(leaf, StoredTensor) and (leaf.dtype, leaf.shape) == (DType.UINT8, (_GENERATOR_BYTES,)):
            yield path, int.from_bytes(b"".join(map(bytes, leaf.blocks(0, 8))), "little")


def _own_rank(holding: Holding) -> int | None:
    """What the job itself called `rank`, where it did so once or says the same each time."""
    found = set()
    for path, leaf in walk(dict(holding.extras)):
        if isinstance(leaf, Opaque):
            found |= {leaf.rank} - {None}
        elif type(leaf) is int and path and str(path[-1]).rpartition(".")[2] in RANK_NAMES:
            found.add(leaf)
    return next(iter(found)) if len(found) == 1 else None


def _device(holding: Holding) -> int | None:
    """The number of the device all tensors lay on, but those on the CPU."""
    states = holding.optimizer.state if holding.optimizer is not None else {}
    found = set()
    for _, leaf in walk([dict(holding.model or {}), dict(states)]):
        match = _DEVICE.fullmatch(leaf.storage.location) if isinstance(leaf, StoredTensor) else None
        if match is not None:
            found.add(int(match[1]))
    return next(iter(found)) if len(found) == 1 else None


_TOLD: tuple[tuple[str, Callable[[Sequence[Holding]], list[int | None]], str], ...] = (
    ("the rank that its job saved in it is", _own_ranks, "says its rank"),
    (
        "by the seeds of their random states, one more each, it is of rank",
        _seeds,
        "says its seed",
    ),
    (
        "the device that its tensors lay on is number",
        _devices,
        "says its device: torch.load(..., map_location='cpu')",
    ),
)
"""How it is called, what finds it, and what of a file says so."""
