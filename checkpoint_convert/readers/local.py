"""LOCAL_STATE_DICT: flat parameters, and how each parameter is cut out of its unit's.

With use_orig_params=False a file holds flat parameters only; with True also a 1-D view per parameter and
rank, whose pieces in rank order are the parameter. Source: `torch/distributed/fsdp/_state_dict_utils.py`
(`_local_pre_state_dict_hook`, `_local_post_state_dict_hook`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from checkpoint_convert.errors import LayoutError
from checkpoint_convert.flat_param import UnitLayout
from checkpoint_convert.layout import ModelLayout, ParameterSpec
from checkpoint_convert.model import Notice, TensorSource, numel
from checkpoint_convert.readers.cutting import cut, join_pieces
from checkpoint_convert.readers.names import flat_prefix
from checkpoint_convert.readers.parts import Part
from checkpoint_convert.readers.unit_sizes import fit, ignored_sets
from checkpoint_convert.stored_tensor import StoredTensor
from checkpoint_convert.torch_objects import ShardedTensorOnRank

UNTIED = "CK103"
"""Parameters tied in the model were stored twice by FSDP1 (one copy per unit) and may have drifted apart."""


@dataclass(frozen=True, slots=True, eq=False)
class LocalModel:
    """A model out of flat parameters.

    Attributes:
        tensors: by FQN, tied names included.
        units: the flat parameters' layouts, for the optimizer; empty with use_orig_params=True.
        pieces: with use_orig_params=True, elements of each parameter on each rank, for the optimizer.
        ignored: parameters FSDP1 did not flatten.
        world_size: ranks of the sharding group.
    """

    tensors: Mapping[str, TensorSource]
    aliases: Mapping[str, str]
    units: Mapping[str, UnitLayout]
    pieces: Mapping[str, tuple[int, ...]]
    ignored: frozenset[str]
    notices: tuple[Notice, ...]
    world_size: int


def read_local(
    part: Part, layout: ModelLayout, memory_order: bool | None, ignored: frozenset[str] = frozenset()
) -> LocalModel:
    """Cut the parameters out of a part's flat parameters.

    Args:
        memory_order: how the saver flattened non-contiguous parameters; None: not known.
        ignored: parameters known not to be flattened; those that stand beside are found without it.

    Raises:
        LayoutError: the layout does not fit the files, or more than one way of cutting does.
    """
    whole = part.model or {}
    flats = {prefix: whole[name] for name in whole if (prefix := flat_prefix(name)) is not None}
    plain = {name: value for name, value in whole.items() if flat_prefix(name) is None}
    specs = {spec.fqn: spec for spec in layout.parameters}
    if part.pieced or (part.local and _has_views(part, specs)):
        return _from_views(part, layout, specs, plain, memory_order)
    views = bool(specs) and set(specs) <= set(plain)
    ignored |= frozenset(
        name for name in plain if name in specs and (not views or _is_whole(plain[name], specs[name]))
    )
    units, group, ignored = fit(part, layout, flats, ignored_sets(layout, ignored), views)
    tensors: dict[str, TensorSource] = {}
    for prefix, unit in units.items():
        flat = flats[prefix]
        for piece in unit.pieces:
            source = cut(flat, piece, memory_order, part.name)
            tensors.update(dict.fromkeys(piece.names, source))
    for name, source in plain.items():
        if name not in tensors:
            tensors[name] = source
    return replace(_finish(part, layout, tensors, units, {}, ignored), world_size=group)


def _is_whole(source: TensorSource, spec: ParameterSpec) -> bool:
    return source.shape == spec.shape and len(spec.shape) != 1


def _are_pieces(on_ranks: Sequence[object], spec: ParameterSpec | None, *, pieced: bool) -> bool:
    if spec is None or not (pieced or not spec.numel):  # without elements there is no storage to share
        return False
    views = [isinstance(view, StoredTensor) and view.shape == spec.shape for view in on_ranks]
    return len(views) < 2 or not all(views)


def _has_views(part: Part, specs: Mapping[str, ParameterSpec]) -> bool:
    """Whether parameters stand beside the flat parameters as views of the same storage."""
    return any(_shares_flat(model, name) for model in part.local for name in model if name in specs)


def _shares_flat(model: Mapping[str, object], name: str) -> bool:
    value = model.get(name)
    return isinstance(value, StoredTensor) and id(value.storage) in _flat_storages(model)


def _flat_storages(model: Mapping[str, object]) -> set[int]:
    found = set()
    for name, value in model.items():
        if flat_prefix(name) is None:
            continue
        if isinstance(value, ShardedTensorOnRank):
            found |= {id(tensor.storage) for _, tensor in value.local}
        elif isinstance(value, StoredTensor):
            found.add(id(value.storage))
    return found


def _from_views(
    part: Part,
    layout: ModelLayout,
    specs: Mapping[str, ParameterSpec],
    plain: Mapping[str, TensorSource],
    memory_order: bool | None,
) -> LocalModel:
    storages = [_flat_storages(model) for model in part.local]
    tensors: dict[str, TensorSource] = {}
    pieces: dict[str, tuple[int, ...]] = {}
    ignored = set()
    for name, value in plain.items():
        on_ranks = [model.get(name) for model in part.local]
        shared = any(
            isinstance(view, StoredTensor) and id(view.storage) in known
            for view, known in zip(on_ranks, storages, strict=True)
        ) or _are_pieces(on_ranks, specs.get(name), pieced=part.pieced)
        if not shared:
            tensors[name] = value
            if name in specs:
                ignored.add(name)
            continue
        views = [view for view in on_ranks if isinstance(view, StoredTensor)]
        pieces[name] = tuple(numel(view.shape) for view in views)
        tensors[name] = join_pieces(views, specs.get(name), name, memory_order, part.name)
    _check_complete(layout, tensors, part.name)
    return _finish(part, layout, tensors, {}, pieces, frozenset(ignored))


def _check_complete(layout: ModelLayout, tensors: Mapping[str, TensorSource], where: str) -> None:
    missing = [spec.fqn for spec in layout.unique_parameters() if spec.fqn not in tensors]
    if missing:
        raise LayoutError(
            f"{where}: holds no {missing[0]}, which the model has",
            hint="Is it the model that was saved, in the same configuration?",
        )


def _finish(
    part: Part,
    layout: ModelLayout,
    tensors: Mapping[str, TensorSource],
    units: Mapping[str, UnitLayout],
    pieces: Mapping[str, tuple[int, ...]],
    ignored: frozenset[str],
) -> LocalModel:
    """Order the model as it would name its own state, tie what is tied, say what FSDP1 untied."""
    in_unit = {
        name: piece.names[0] for unit in units.values() for piece in unit.pieces for name in piece.names
    }
    aliases, drifted = {}, []
    tensors = dict(tensors)
    for name, first in layout.aliases().items():
        if units and in_unit.get(name) != in_unit.get(first):
            drifted.append(f"{name} and {first}")
        elif first in tensors:
            tensors[name] = tensors[first]
            aliases[name] = first
    order = {spec.fqn: number for number, spec in enumerate(layout.parameters)}
    names = sorted(tensors, key=lambda name: order.get(name, len(order)))
    notices = [
        Notice(UNTIED, f"{pair} are tied in the model, but FSDP1 kept a copy in each unit; both are kept")
        for pair in drifted
    ]
    ordered = {name: tensors[name] for name in names}
    return LocalModel(ordered, aliases, units, pieces, ignored, tuple(notices), part.world_size or 1)
