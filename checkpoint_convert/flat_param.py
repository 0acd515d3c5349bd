"""FlatParameter arithmetic: which parameter lies where in a unit's flat parameter, and on which rank.

Source: `torch/distributed/fsdp/_flat_param.py` (`FlatParamHandle._init_flat_param_and_metadata`,
`flatten_tensors`, `_get_shard`, `_init_shard_metadata`), `_wrap_utils.py` for the order of wrapping. Held
against torch's own handles in the tests.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from checkpoint_convert.layout import ModelLayout, ParameterSpec
from checkpoint_convert.model import DType
from checkpoint_convert.stored_tensor import extent, is_contiguous

ALIGNMENT_BYTES = 16
"""`_flat_param.py::_get_aligned_numel`: with use_orig_params, parameters begin at multiples of it."""

COMPUTE_ITEMSIZES = (None, 2, 4, 8, 1)
"""`Sharding.compute_itemsize` to try, none first: mixed-precision dtypes are not in the files."""


@dataclass(frozen=True, slots=True)
class FlatPiece:
    """One parameter inside a flat parameter.

    Attributes:
        offset: its first element's position in the unsharded flat parameter.
        names: its FQN, then the names tied to it inside the unit.
    """

    spec: ParameterSpec
    offset: int
    names: tuple[str, ...]

    @property
    def stop(self) -> int:
        """Position after its last element."""
        return self.offset + self.spec.numel


@dataclass(frozen=True, slots=True)
class UnitLayout:
    """A unit's flat parameter.

    Attributes:
        prefix: FQN of the wrapped module.
        total: elements, alignment padding included, padding for even shards not
            (`_unpadded_unsharded_size`).
        shard: elements each rank holds, padding included.
    """

    prefix: str
    pieces: tuple[FlatPiece, ...]
    total: int
    shard: int


def unit_members(
    layout: ModelLayout,
    prefixes: Iterable[str],
    ignored: frozenset[str] = frozenset(),
    *,
    use_orig_params: bool = False,
) -> dict[str, tuple[ParameterSpec, ...]]:
    """The registrations each unit flattens, in flattening order; units without parameters are left out.

    A registration belongs to the innermost unit around it. One reachable by two paths belongs to the unit
    that is wrapped first. With use_orig_params so does a parameter tied across units; without, every unit
    keeps a copy.

    Args:
        prefixes: FQNs of the wrapped modules; the root, "", is always one.
        ignored: FQNs that FSDP1 was told to ignore.
    """
    known = {"", *prefixes}
    inside: dict[str, list[ParameterSpec]] = {}
    for spec in layout.parameters:
        if spec.fqn not in ignored:
            inside.setdefault(_owner(spec.fqn, known), []).append(spec)
    taken: dict[int, str] = {}
    members: dict[str, list[ParameterSpec]] = {}
    for prefix in _wrap_order(layout, known):
        for spec in inside.get(prefix, ()):
            once = spec.tensor if use_orig_params else spec.slot
            if taken.setdefault(once, prefix) == prefix:
                members.setdefault(prefix, []).append(spec)
    order = {module.fqn: number for number, module in enumerate(layout.modules)}
    return {prefix: tuple(members[prefix]) for prefix in sorted(members, key=lambda p: order.get(p, -1))}


def _owner(fqn: str, prefixes: Collection[str]) -> str:
    """The longest of the prefixes, the root among them, that the name is below of."""
    while fqn:
        fqn = fqn.rpartition(".")[0]
        if fqn in prefixes:
            break
    return fqn


def _inside(fqn: str, prefix: str) -> bool:
    return not prefix or fqn.startswith(f"{prefix}.")


def _wrap_order(layout: ModelLayout, prefixes: Collection[str]) -> list[str]:
    """Post-order: a module after those inside it, siblings in the model's order."""
    place = {module.fqn: number for number, module in enumerate(layout.modules)}
    order: list[str] = []
    around: list[str] = []
    for prefix in sorted(prefixes, key=lambda prefix: place.get(prefix, -1)):
        while around and not _inside(prefix, around[-1]):
            order.append(around.pop())
        around.append(prefix)
    return order + around[::-1]


@dataclass(frozen=True, slots=True)
class Sharding:
    """How a job cut its flat parameters.

    Attributes:
        world_size: ranks of the process group FSDP1 sharded over (one replica's, under hybrid sharding).
        aligned: use_orig_params=True with torch 2.1 or later, which align parameters and pad the end.
        compute_itemsize: bytes per element of the mixed-precision `param_dtype`; None where it is not set.
            It decides the alignment even of full-precision parameters.
        sharded: False for NO_SHARD: every rank holds all.
    """

    world_size: int
    aligned: bool
    compute_itemsize: int | None = None
    sharded: bool = True

    def alignment(self, dtype: DType) -> int:
        """Elements to which parameters are aligned; 0 where they are not."""
        return max(1, ALIGNMENT_BYTES // (self.compute_itemsize or dtype.itemsize)) if self.aligned else 0


def lay_out(prefix: str, members: Sequence[ParameterSpec], dtype: DType, sharding: Sharding) -> UnitLayout:
    """Positions inside one unit's flat parameter.

    Args:
        members: from `unit_members`; tied ones are stored once, where they first appear.
        dtype: of the flat parameter.
    """
    alignment, world = sharding.alignment(dtype), sharding.world_size
    tied: dict[int, list[str]] = {}
    for spec in members:
        tied.setdefault(spec.tensor, []).append(spec.fqn)
    pieces, at = [], 0
    for spec in members:
        names = tied.pop(spec.tensor, None)
        if names is None:
            continue
        if alignment:
            at += -at % alignment
        pieces.append(FlatPiece(spec, at, tuple(names)))
        at += spec.numel
    if alignment:
        at += -at % world
    shard = shard_numel(at, world) if sharding.sharded else at
    return UnitLayout(prefix, tuple(pieces), at, shard)


def shard_numel(total: int, world_size: int) -> int:
    """Elements of each rank's shard: `torch.chunk`'s, the last ones padded."""
    return -(-total // world_size)


def span_on_rank(start: int, stop: int, shard: int, rank: int) -> tuple[int, int]:
    """The part of flat positions `start` to `stop` that a rank holds, as positions in its shard."""
    begin, end = max(start, rank * shard), min(stop, (rank + 1) * shard)
    return (begin - rank * shard, end - rank * shard) if begin < end else (0, 0)


def flattened_in_memory_order(spec: ParameterSpec) -> bool:
    """Whether torch 2.6 and later flatten this parameter in memory order, not row-major.

    Such a parameter must be dense: its elements fill its memory, in whichever order.
    """
    return not is_contiguous(spec.shape, spec.stride) and extent(spec.shape, spec.stride) == spec.numel
