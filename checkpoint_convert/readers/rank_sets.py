"""Files that belong together: the ranks of one save, told apart from files that stand alone.

A number in the file name is a hint; what the files hold decides: sharded tensors name their rank and
world, optimizer state over flat parameters has one file per rank, full files stand alone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from checkpoint_convert.errors import AmbiguousFormatError, IncompleteError
from checkpoint_convert.optim_state import group_keys
from checkpoint_convert.plain_values import walk
from checkpoint_convert.readers.holdings import Holding
from checkpoint_convert.readers.names import clean, flat_prefix
from checkpoint_convert.readers.rank_hints import suggested
from checkpoint_convert.torch_objects import DTensorOnRank, ShardedTensorOnRank

_DIGITS = re.compile(r"\d+")
_LAST_NUMBER = re.compile(r"\.\d+$")
_SHOWN = 4
_RANK_FIELD = re.compile(r"(?:rank|shard|proc|r)[_\-.]?$", re.IGNORECASE)


@dataclass(frozen=True, slots=True, eq=False)
class RankSet:
    """One save: a file per rank, in rank order, or a single file.

    Attributes:
        name: what to call it in messages: the file, or the pattern with `*` for the rank.
        ranks: the rank of each holding; None for a file that stands alone.
        told: the files say which rank they are of, not only their names or places.
    """

    name: str
    holdings: tuple[Holding, ...]
    ranks: tuple[int, ...] | None
    told: bool = True

    @property
    def first(self) -> Holding:
        """The lowest rank's file."""
        return self.holdings[0]


def group_ranks(
    holdings: Sequence[Holding], given: Collection[Path] = (), *, use_optimizer: bool = True
) -> list[RankSet]:
    """Put files of one save together.

    Args:
        given: files that the caller named one by one: where no name has a number, their order is the ranks'.
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
    found: list[list[Holding]] = []
    alone: list[list[Holding]] = []
    for group in _with_first(list(groups.values())):
        (found if len(group) > 1 else alone).append(group)
    sets = [_rank_set(group) for group in found]
    for group in _shares_by_content([group[0] for group in alone], use_optimizer=use_optimizer):
        sets.append(_rank_set(group) if len(group) == 1 else _unnumbered(group, given))
    place = {id(holding): number for number, holding in enumerate(holdings)}
    return sorted(sets, key=lambda one: min(place[id(holding)] for holding in one.holdings))


def _with_first(groups: list[list[Holding]]) -> list[list[Holding]]:
    """Rank 0's file where it is the one without a number: `checkpoint.th`, `checkpoint.th.1`, ..."""
    single = {str(group[0].path): group for group in groups if len(group) == 1}
    joined: dict[int, list[Holding]] = {}
    for group in groups:
        stems = {_LAST_NUMBER.sub("", str(holding.path)) for holding in group}
        numbers = {_number_at_end(holding.path) for holding in group}
        first = single.get(next(iter(stems))) if len(stems) == 1 else None
        if first is None or first is group or 0 in numbers or 1 not in numbers:
            continue
        if _kind(first[0], use_optimizer=True) == _kind(group[0], use_optimizer=True):
            joined[id(first)] = []
            joined[id(group)] = [*first, *group]
    return [found for group in groups if (found := joined.get(id(group), group))]


def _number_at_end(path: Path) -> int | None:
    found = _LAST_NUMBER.search(path.name)
    return int(found.group()[1:]) if found is not None else None


def _shares_by_content(alone: Sequence[Holding], *, use_optimizer: bool) -> list[list[Holding]]:
    """Files that only what they hold makes ranks of one save: shares of the same model or optimizer."""
    if len(alone) < 2:
        return [[holding] for holding in alone]
    groups: dict[object, list[Holding]] = {}
    for holding in alone:
        key: object = id(holding)
        if _is_share(holding):
            optimizer = holding.optimizer if use_optimizer else None
            numbers = (
                [tuple(group_keys(group)) for group in optimizer.groups] if optimizer is not None else []
            )
            key = (
                *_kind(holding, use_optimizer=use_optimizer),
                frozenset(holding.model or ()),
                repr(numbers),
            )
        groups.setdefault(key, []).append(holding)
    return list(groups.values())


def _is_share(holding: Holding) -> bool:
    """Whether a file cannot stand alone: it holds shards, flat parameters or pieces."""
    leaves = [leaf for leaf in _leaves(holding) if getattr(leaf, "shape", ()) != ()]
    if any(isinstance(leaf, ShardedTensorOnRank | DTensorOnRank) for leaf in leaves):
        return True
    if any(flat_prefix(clean(name)) is not None for name in holding.model or ()):
        return True
    numbered = holding.optimizer is None or holding.optimizer.by_number
    return numbered and bool(leaves) and all(len(getattr(leaf, "shape", ())) == 1 for leaf in leaves)


def _unnumbered(group: list[Holding], given: Collection[Path]) -> RankSet:
    """Ranks' files whose names have no number.

    Raises:
        AmbiguousFormatError: nothing says which rank each is of.
    """
    inside = [rank if (rank := rank_inside(one)) is not None else rank_on_mesh(one) for one in group]
    told = [rank for rank in inside if rank is not None]
    if len(set(told)) == len(group):
        ordered = sorted(zip(told, group, strict=True), key=lambda pair: pair[0])
        return RankSet(
            _common([one.path for one in group]), tuple(one for _, one in ordered), tuple(sorted(told))
        )
    paths = [holding.path for holding in group]
    if not all(path in given for path in paths):
        raise AmbiguousFormatError(
            f"{', '.join(map(str, paths[:_SHOWN]))}: are of several ranks, and neither what they hold nor "
            "their names say which",
            hint="Name them one by one, in the order of the ranks: rank 0's file, rank 1's, ..."
            + suggested(group),
        )
    return RankSet(_common(paths), tuple(group), tuple(range(len(group))), told=False)


def _common(paths: Sequence[Path]) -> str:
    first, last = str(paths[0]), str(paths[-1])
    return f"{first} to {last}"


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
    told = len(ranks) == len(group)
    if not told:
        ranks = _numbers_by_name([holding.path for holding in group])
        told = ranks == [rank_on_mesh(holding) for holding in group]
    ordered = sorted(zip(ranks, group, strict=True), key=lambda pair: pair[0])
    name = _pattern([holding.path for holding in group])
    for (rank, one), (other, two) in pairwise(ordered):
        if rank == other:
            raise IncompleteError(
                f"{one.path} and {two.path} both are rank {rank}",
                hint="Give the files of one save only.",
            )
    put = tuple(holding for _, holding in ordered)
    return RankSet(name, put, tuple(rank for rank, _ in ordered), told)


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


def rank_on_mesh(holding: Holding) -> int | None:
    """The rank by the place in the mesh that the file's DTensors tell, ranks counted through the mesh."""
    for leaf in _leaves(holding):
        if isinstance(leaf, DTensorOnRank) and leaf.coordinate is not None and leaf.mesh_shape:
            rank = 0
            for size, at in zip(leaf.mesh_shape, leaf.coordinate, strict=False):
                rank = rank * size + at
            return rank
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
    longest = max(map(len, fields))
    if any(len(row) < longest for row in fields):  # rank 0's has no number, the others' is the last
        return [int(row[-1]) if len(row) == longest else 0 for row in fields]
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
    if _LAST_NUMBER.sub("", last) == first:
        return _LAST_NUMBER.sub(".*", last)
    fields = [_DIGITS.findall(str(path)) for path in paths]
    pieces, at = [], 0
    for column, match in enumerate(_DIGITS.finditer(first)):
        same = len({row[column] for row in fields}) == 1
        pieces += [first[at : match.start()], match.group() if same else "*"]
        at = match.end()
    return "".join(pieces) + first[at:] if first != last else first
