"""Units that FSDP1 did not shard (NO_SHARD) inside of sharded ones, told by sizes where no layout notes them.

With use_orig_params=False such a unit's optimizer state is one dimension of as many elements as all of its
parameters have, on every rank. With True its parameters have state of their own shapes on every rank, as
parameters have that FSDP1 was told to ignore, and are numbered like them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, groupby

from checkpoint_convert.flat_param import Sharding, UnitLayout, lay_out, shard_numel, unit_members
from checkpoint_convert.layout import ModelLayout, ParameterSpec
from checkpoint_convert.optim_state import SavedOptimizer, group_keys, listed_keys
from checkpoint_convert.raw_state import element_shapes

_MAX_MODULES = 2000
_MAX_CLASSES = 12
Members = Mapping[str, Sequence[ParameterSpec]]


def flat_sizes(ranks: Sequence[SavedOptimizer]) -> frozenset[int]:
    """Numbers of elements of one-dimensional state that are the same on all ranks."""
    found = set()
    for number, entry in ranks[0].state.items():
        flat = {shape[0] for shape in element_shapes(entry) if len(shape) == 1}
        for saved in ranks[1:]:
            flat &= {shape[0] for shape in element_shapes(saved.state.get(number, {})) if len(shape) == 1}
        found |= flat
    return frozenset(found)


def whole_parameters(layout: ModelLayout, ranks: Sequence[SavedOptimizer]) -> frozenset[str]:
    """Parameters whose state is there in full, in their own shape, on every rank.

    Only where one group numbers all parameters in their order; more groups have orders of their own.
    """
    keys = listed_keys(ranks[0])
    specs = list(layout.unique_parameters())
    if sum(bool(group_keys(group)) for group in ranks[0].groups) != 1 or len(ranks) < 2:
        return frozenset()
    if len(keys) != len(specs):
        specs = [spec for spec in specs if spec.requires_grad]
    if len(keys) != len(specs):
        return frozenset()
    found: set[str] = set()
    for _, own in groupby(zip(keys, specs, strict=True), lambda pair: pair[1].module):
        pairs = list(own)
        is_whole = [
            all(spec.shape in element_shapes(saved.state.get(key, {})) for saved in ranks)
            for key, spec in pairs
        ]
        found |= {spec.fqn for (_, spec), whole in zip(pairs, is_whole, strict=True) if whole}
        if any(is_whole) and not all(is_whole) and _could_be_others(pairs, is_whole):
            return frozenset()
    return frozenset(found)


def _could_be_others(pairs: Sequence[tuple[object, ParameterSpec]], is_whole: Sequence[bool]) -> bool:
    """Whether a module's own whole parameters may be others than those of their places.

    FSDP1 enters the parameters that it flattens into their module anew, behind those that it was told to
    ignore (`_flat_param.py`, `_setattr_param`).
    """
    shapes = [spec.shape for _, spec in pairs]
    wanted = [shape for shape, whole in zip(shapes, is_whole, strict=True) if whole]
    first = _places(wanted, shapes)
    last = [len(shapes) - 1 - place for place in reversed(_places(wanted[::-1], shapes[::-1]))]
    return all(is_whole[: len(wanted)]) and first != last


def _places(wanted: Sequence[tuple[int, ...]], shapes: Sequence[tuple[int, ...]]) -> list[int]:
    """Where shapes stand among others that have them in this order, each as early as can be."""
    places: list[int] = []
    for shape in wanted:
        places.append(shapes.index(shape, places[-1] + 1 if places else 0))
    return places


def unsharded_prefixes(
    layout: ModelLayout, inside: frozenset[str], sizes: frozenset[int]
) -> Iterator[tuple[str, ...]]:
    """Modules that may each be one unsharded unit: all of a class, of two, or one alone.

    Args:
        inside: the parameters that may be theirs.
        sizes: what their totals may be.
    """
    total: dict[str, int] = {}
    outside = set()
    for spec in layout.unique_parameters():
        path = spec.module
        while path:
            total[path] = total.get(path, 0) + spec.numel
            if spec.fqn not in inside:
                outside.add(path)
            path = path.rpartition(".")[0]
    fitting = [
        module
        for module in layout.modules[:_MAX_MODULES]
        if module.fqn not in outside and total.get(module.fqn) in sizes
    ]
    classes: dict[str, list[str]] = {}
    for module in fitting:
        if module.classes:
            classes.setdefault(module.classes[0], []).append(module.fqn)
    seen = set()
    of_two = (one + two for one, two in combinations(list(classes.values())[:_MAX_CLASSES], 2))
    for prefixes in (*classes.values(), *of_two, *([module.fqn] for module in fitting)):
        apart = tuple(one for one in prefixes if not any(one.startswith(f"{two}.") for two in prefixes))
        if apart not in seen:
            seen.add(apart)
            yield apart


def partly_whole(
    members: Members, extra: Sequence[str], sizes: frozenset[int], world: int
) -> dict[str, UnitLayout] | None:
    """Units without inner padding, those of which sizes say so unsharded; None where they say so of none."""
    whole, sharded = Sharding(world, aligned=False, sharded=False), Sharding(world, aligned=False)
    units = {}
    for prefix, specs in members.items():
        unit = lay_out(prefix, specs, specs[0].dtype, sharded)
        is_whole = unit.total in sizes and (prefix in extra or shard_numel(unit.total, world) not in sizes)
        units[prefix] = lay_out(prefix, specs, specs[0].dtype, whole) if is_whole else unit
    some = [prefix for prefix, unit in units.items() if unit.shard == unit.total]
    return units if some and len(some) < len(units) and world > 1 else None


def members_with(
    layout: ModelLayout, prefixes: Sequence[str], ignored: frozenset[str], sizes: frozenset[int]
) -> Iterator[tuple[Members, tuple[str, ...]]]:
    """The members of given units, by themselves and with modules beside them that may be unsharded units."""
    yield unit_members(layout, prefixes, ignored), ()
    every = frozenset(spec.fqn for spec in layout.parameters)
    for extra in unsharded_prefixes(layout, every - ignored, sizes):
        if not set(extra) & set(prefixes):
            yield unit_members(layout, (*prefixes, *extra), ignored), extra
