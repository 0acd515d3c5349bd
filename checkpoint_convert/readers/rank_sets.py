"""Files that belong together: the ranks of one save, told apart from files that stand alone.

A number in the file name is a hint; what the files hold decides: sharded tensors name their rank and
world, optimizer state over flat parameters has one file per rank, full files stand alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from checkpoint_convert.errors import AmbiguousFormatError, IncompleteError
from checkpoint_convert.plain_values import walk
from checkpoint_convert.readers.holdings import Holding
from checkpoint_convert.torch_objects import DTensorOnRank, ShardedTensorOnRank

_DIGITS = re.compile(r"\d+")
_RANK_FIELD = re.compile(r"(?:rank|shard|proc|r)[_\-.]?$", re.IGNORECASE)


@dataclass(frozen=True, slots=True, eq=False)
class RankSet:
    """One save: a file per rank, in rank order, or a single file.

    Attributes:
        name: what to call it in messages: the file, or the pattern with `*` for the rank.
        ranks: the rank of each holding; None for a file that stands alone.
    """

    name: str
    holdings: tuple[Holding, ...]
    ranks: tuple[int, ...] | None

    @property
    def first(self) -> Holding:
        """The lowest rank's file."""
        return self.holdings[0]


def group_ranks(holdings: Sequence[Holding], *, use_optimizer: bool = True) -> list[RankSet]:
    """Put files of one save together.

    Args:
        use_optimizer: False where it does not matter whether there is one beside a model.

    Raises:
        IncompleteError: a rank is missing, or is there twice, or has no optimizer where others have one.
        AmbiguousFormatError: files that look alike and are not ranks of one save.
    """
    groups: dict[tuple[object, ...], list[Holding]] = {}
    for holding in holdings:
        key = (_DIGITS.sub("#", str(holding.path)), _kind(holding, use_optimizer=use_optimizer))
        groups.setdefault(key, []).append(holding)
    _check_alike([(str(key[0]), group[0]) for key, group in groups.items()])
    return [_rank_set(group) for group in groups.values()]


def _kind(holding: Holding, *, use_optimizer: bool) -> tuple[bool, bool, bool]:
    """What a file must share with another to be a rank of the same save."""
    if holding.model is not None and not use_optimizer:
        return True, False, False
    numbered = holding.optimizer is not None and holding.optimizer.by_number
    return holding.model is not None, holding.optimizer is not None, numbered


def _check_alike(firsts: Sequence[tuple[str, Holding]]) -> None:
    """Files that are named as ranks and hold the same model have all an optimizer, or none."""
    seen: dict[tuple[str, frozenset[str]], Holding] = {}
    for pattern, holding in firsts:
        if holding.model is None:
            continue
        other = seen.setdefault((pattern, frozenset(holding.model)), holding)
        if (other.optimizer is None) != (holding.optimizer is None):
            with_one, without = (holding, other) if other.optimizer is None else (other, holding)
            raise IncompleteError(
                f"{with_one.path} holds an optimizer, {without.path} holds none",
                hint="Give the files of one save only; --only model leaves the optimizer out.",
            )


def _rank_set(group: list[Holding]) -> RankSet:
    inside = [rank_inside(holding) for holding in group]
    if len(group) == 1:
        number = inside[0] if inside[0] is not None else _number_in_name(group[0].path)
        sharded = any(isinstance(leaf, ShardedTensorOnRank | DTensorOnRank) for leaf in _leaves(group[0]))
        return RankSet(str(group[0].path), tuple(group), (number or 0,) if sharded else None)
    ranks = [rank for rank in inside if rank is not None]
    if len(ranks) < len(group):
        ranks = _numbers_by_name([holding.path for holding in group])
    ordered = sorted(zip(ranks, group, strict=True), key=lambda pair: pair[0])
    name = _pattern([holding.path for holding in group])
    for (rank, one), (other, two) in pairwise(ordered):
        if rank == other:
            raise IncompleteError(
                f"{one.path} and {two.path} both are rank {rank}",
                hint="Give the files of one save only.",
            )
    return RankSet(name, tuple(holding for _, holding in ordered), tuple(rank for rank, _ in ordered))


def _leaves(holding: Holding) -> list[object]:
    optimizer = holding.optimizer
    parts = [dict(holding.model or {}), dict(optimizer.state) if optimizer else {}]
    return [leaf for _, leaf in walk(parts)]


def rank_inside(holding: Holding) -> int | None:
    """The rank the file itself tells, through its sharded tensors; None where it does not."""
    for leaf in _leaves(holding):
        if isinstance(leaf, ShardedTensorOnRank) and leaf.global_rank is not None:
            return leaf.global_rank
    return None


def _number_in_name(path: Path) -> int | None:
    for match in reversed(list(_DIGITS.finditer(path.name))):
        if _RANK_FIELD.search(path.name[: match.start()]):
            return int(match.group())
    return None


def last_number(path: Path) -> int | None:
    """The rank that a file's name tells where no other file is there to compare it with: its last number."""
    named = _number_in_name(path)
    numbers = _DIGITS.findall(path.stem)
    return named if named is not None or not numbers else int(numbers[-1])


def _numbers_by_name(paths: Sequence[Path]) -> list[int]:
    """Each file's rank: the one number in which the paths differ, or the one after `rank`."""
    fields = [_DIGITS.findall(str(path)) for path in paths]
    varying = [column for column in range(len(fields[0])) if len({row[column] for row in fields}) > 1]
    if len(varying) == 1:
        return [int(row[varying[0]]) for row in fields]
    named = [_number_in_name(path) for path in paths]
    if all(number is not None for number in named):
        return [number for number in named if number is not None]
    raise AmbiguousFormatError(
        f"{paths[0]} and {paths[1]}: which number is the rank?",
        hint="Give the files of one save only, named alike but for the rank.",
    )


def _pattern(paths: Sequence[Path]) -> str:
    """The common path with `*` for what differs."""
    first, last = str(paths[0]), str(paths[-1])
    fields = [_DIGITS.findall(str(path)) for path in paths]
    pieces, at = [], 0
    for column, match in enumerate(_DIGITS.finditer(first)):
        same = len({row[column] for row in fields}) == 1
        pieces += [first[at : match.start()], match.group() if same else "*"]
        at = match.end()
    return "".join(pieces) + first[at:] if first != last else first
