"""Each rank's rows of the parameters as plain tensors: what `local_tensor()` and `to_local()` give.

Such files do not say of what they hold rows; the model's shapes do. They are rows of it only if every
rank has just those that sharding along the first dimension gives it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from checkpoint_convert.errors import CheckpointError, LayoutError
from checkpoint_convert.layout import ModelLayout, ParameterSpec
from checkpoint_convert.model import Notice, TensorSource, numel
from checkpoint_convert.readers.merged import differs
from checkpoint_convert.readers.parts import Part
from checkpoint_convert.readers.rank_order import by_name
from checkpoint_convert.readers.sharded import shard_box
from checkpoint_convert.same_values import same_value
from checkpoint_convert.tensor_sources import ConcatTensor
from checkpoint_convert.values import is_tensor


def joined_slices(
    part: Part, layout: ModelLayout | None, refusal: CheckpointError
) -> tuple[dict[str, TensorSource], list[Notice]]:
    """The model out of every rank's rows.

    Args:
        refusal: why the files alone are not enough.

    Raises:
        LayoutError: a parameter's rows are not those of this model.
    """
    if layout is None or len(part.local) < 2:
        raise refusal
    specs = {spec.fqn: spec for spec in layout.parameters}
    names = dict.fromkeys(name for model in part.local for name in model)
    _check_complete(specs, names, part.name)
    model: dict[str, TensorSource] = {}
    rows: list[tuple[int, ...]] = []
    differing = []
    for name in names:
        held = [value if is_tensor(value := one.get(name)) else None for one in part.local]
        first = next((value for value in held if value is not None), None)
        if first is None:
            raise refusal
        spec = specs.get(name)
        if spec is not None and not _is_whole(held, spec):
            model[name] = _joined(held, spec, part.name)
            rows.append(tuple(0 if value is None else numel(value.shape) for value in held))
            continue
        model[name] = first
        if not all(value is None or same_value(first, value) for value in held):
            differing.append(name)
    if not rows:
        raise refusal
    notices = []
    if differing:
        notices.append(differs(part.name, differing))
    if part.unnamed and len(set(zip(*rows, strict=True))) < len(part.local):
        notices.append(by_name(part.unnamed, part.name))
    return model, notices


def _is_whole(held: Sequence[TensorSource | None], spec: ParameterSpec) -> bool:
    return not spec.shape or all(value is not None and value.shape == spec.shape for value in held)


def _joined(held: Sequence[TensorSource | None], spec: ParameterSpec, where: str) -> TensorSource:
    parts = []
    for rank, value in enumerate(held):
        _, due = shard_box(spec.shape, (0,), (len(held),), (rank,), where)
        found = (0,) if value is None else value.shape
        if found != due and (numel(found) or numel(due)):
            raise LayoutError(
                f"{where}: rank {rank} holds {spec.fqn} in size {found}; of {spec.shape} on {len(held)} "
                f"ranks size {due} is due",
                hint="Is it the model that was saved, and are these the files of all ranks, in their order?",
            )
        if value is not None and numel(found):
            parts.append(value)
    return ConcatTensor(parts, parts[0].dtype, spec.shape)


def _check_complete(specs: Mapping[str, ParameterSpec], names: Mapping[str, object], where: str) -> None:
    tensors = {specs[name].tensor for name in names if name in specs}
    missing = next((name for name, spec in specs.items() if spec.tensor not in tensors), None)
    if missing is not None:
        raise LayoutError(
            f"{where}: holds no {missing}, which the model has",
            hint="Is it the model that was saved, in the same configuration?",
        )
