"""What a file tells of its rank by the way: its job's own `rank`, and the device that its tensors lay on.

Neither is a rank that torch wrote, so neither puts files in order. But where every rank of one node is told
once, it confirms the order that names or the command line say, or contradicts it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from checkpoint_convert.errors import IncompleteError
from checkpoint_convert.model import Opaque
from checkpoint_convert.plain_values import walk
from checkpoint_convert.readers.holdings import Holding
from checkpoint_convert.stored_tensor import StoredTensor

RANK_NAMES = frozenset({"rank", "global_rank"})
"""What a job calls its rank among its own values and arguments; not `local_rank`, which nodes repeat."""

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
        ranks = [tell(holding) for holding in holdings]
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
    return False


def suggested(holdings: Sequence[Holding]) -> str:
    """The order that files without numbers tell by the way, as a sentence; empty where they tell none."""
    for told, tell, _ in _TOLD:
        ranks = [tell(holding) for holding in holdings]
        if _is_each_once(ranks):
            return f" By what they hold ({told} 0, 1, ...) it is {_named(holdings, ranks)}."
    return ""


def _is_each_once(ranks: Sequence[int | None]) -> bool:
    return sorted(rank for rank in ranks if rank is not None) == list(range(len(ranks)))


def _named(holdings: Sequence[Holding], ranks: Sequence[int | None]) -> str:
    by_rank = {rank: holding.path.name for rank, holding in zip(ranks, holdings, strict=True)}
    return ", ".join(by_rank[rank] for rank in range(len(holdings)))


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


_TOLD: tuple[tuple[str, Callable[[Holding], int | None], str], ...] = (
    ("the rank that its job saved in it is", _own_rank, "says its rank"),
    (
        "the device that its tensors lay on is number",
        _device,
        "says its device: torch.load(..., map_location='cpu')",
    ),
)
"""How it is called, what finds it, and what of a file says so."""
