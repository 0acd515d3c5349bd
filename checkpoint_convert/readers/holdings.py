"""What one file holds: which part of its nested value is the model, which the optimizer, which the rest.

Writers nest as they like (`{"model": ..., "optimizer": ..., "epoch": 3}`, `{"state": {"model": ...}}`); what
a part is shows in its contents. Which of several is meant, `choices` decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from types import UnionType

from checkpoint_convert.errors import UnsupportedError
from checkpoint_convert.model import DType, Opaque
from checkpoint_convert.optim_state import SavedOptimizer, is_optimizer, read_saved
from checkpoint_convert.plain_values import walk
from checkpoint_convert.readers.choices import (
    MODEL_NAMES,
    Choice,
    KeyPath,
    choose_model,
    choose_optimizer,
)
from checkpoint_convert.readers.find import OLMO_LOCAL, is_olmo_local
from checkpoint_convert.readers.flattened_optim import unflattened
from checkpoint_convert.readers.joint_optimizers import of_one_model
from checkpoint_convert.readers.names import clean
from checkpoint_convert.readers.options import ReadOptions
from checkpoint_convert.readers.pickled_objects import state_dicts_of
from checkpoint_convert.readers.strange_tensors import refuse_strange_tensors
from checkpoint_convert.torch_file import BY_PICKLE
from checkpoint_convert.torch_objects import DTensorOnRank, ShardedTensorOnRank
from checkpoint_convert.values import dotted, is_module_state, is_tensor, module_state_key

FAIRSCALE = "shard_metadata"
"""The key that files of fairscale's FSDP have beside the model."""

_DEPTH = 5
_WHOLE_NUMBERS = frozenset(
    {
        DType.INT64,
        DType.INT32,
        DType.INT16,
        DType.INT8,
        DType.UINT64,
        DType.UINT32,
        DType.UINT16,
        DType.UINT8,
        DType.BOOL,
    }
)
PARAMETER_NAMES = ("weight", "bias")
"""What the names of most parameters end with, and those of no buffer."""


@dataclass(frozen=True, slots=True, eq=False)
class Holding:
    """One file's (or one DCP directory's) parts.

    Attributes:
        model: tensors by the names the file gives them; None where it holds no model.
        optimizer: None where it holds none.
        extras: the rest, by the file's own keys; keys of nested containers joined by dots. What the model's
            modules say of themselves (`get_extra_state`) is by `module_state_key`.
        candidates: names of all models and optimizers in it, as `--from-key` takes them.
        by_key: the keys of the user that named something here.
        left: names of models and optimizers that are neither taken nor among the extras.
    """

    path: Path
    model: Mapping[str, object] | None
    optimizer: SavedOptimizer | None
    extras: Mapping[str, object] = field(default_factory=dict)
    candidates: tuple[str, ...] = ()
    by_key: frozenset[str] = frozenset()
    left: tuple[str, ...] = ()


def _is_tensor_or_shard(value: object) -> bool:
    return is_tensor(value) or isinstance(value, ShardedTensorOnRank | DTensorOnRank)


def read_holding(value: object, path: Path, options: ReadOptions) -> Holding:
    """Tell a file's parts apart.

    Raises:
        AmbiguousFormatError: several parts could be the model, or the optimizer.
        UnsupportedError: neither model nor optimizer nor plain values, a pickled module, say; or a tensor of
            theirs has no elements that lie in the file.
    """
    _refuse_other_forms(value, path)
    optimizers = dict(_optimizers(value, ()))
    models: dict[KeyPath, dict[str, object]] = {}
    for looks, kinds in product((_looks_like_model, _is_named_like_model), (dict, dict | list | tuple)):
        models = models or dict(_models(value, (), set(optimizers), looks, kinds))
    chosen = choose_model(list(models), path, options)
    chosen_optimizer = choose_optimizer(list(optimizers), path, options)
    model = _joined(models, chosen)
    if options.use_model and not options.only_listed:
        for at in chosen.members:
            refuse_strange_tensors(_below(value, at), path)
    taken = {(*at, name) for at in chosen.members for name in models[at]}
    for at in chosen_optimizer.members:
        taken |= {(*at, key) for key, _ in _below(value, at) if _is_of_optimizer(key)}
    left = _left(models, chosen) | _left(optimizers, chosen_optimizer)
    if not chosen_optimizer.members:
        left |= set(optimizers)
    opened = (*chosen.members, *left, *chosen_optimizer.members)
    extras = {_extra_name(at, chosen): item for at, item in _extras(value, (), opened, taken | left)}
    optimizer = None
    if chosen_optimizer.members:
        saved = {dotted(at): read_saved(optimizers[at], str(path)) for at in chosen_optimizer.members}
        optimizer = _optimizer(saved, path, options)
        if options.use_optimizer and not options.only_listed:
            for key, state in optimizer.state.items():
                refuse_strange_tensors(((f"{name} of {key}", item) for name, item in state.items()), path)
    return Holding(
        path,
        model,
        optimizer,
        extras,
        tuple(dotted(at) for at in (*models, *optimizers) if at),
        chosen.by_key | chosen_optimizer.by_key,
        tuple(dotted(at) for at in (*models, *optimizers) if at in left),
    )


def _optimizer(saved: Mapping[str, SavedOptimizer], path: Path, options: ReadOptions) -> SavedOptimizer:
    """The chosen optimizers as one; the first of those that cannot be joined, where nothing is made of it."""
    try:
        return of_one_model(saved, str(path))
    except UnsupportedError:
        if options.use_optimizer and not options.only_listed:
            raise
        return next(iter(saved.values()))


def _joined(models: Mapping[KeyPath, Mapping[str, object]], chosen: Choice) -> Mapping[str, object] | None:
    """The chosen model; parts of one under the names it has in the whole."""
    if chosen.only is not None:
        return models[chosen.only]
    joined = {
        ".".join((*map(str, at[len(chosen.root) :]), name)): item
        for at in chosen.members
        for name, item in models[at].items()
    }
    return joined or None


def _left(found: Mapping[KeyPath, object], chosen: Choice) -> set[KeyPath]:
    """What stays in the source: all others where the user chose one, else those that are no whole tensors."""
    others = [at for at in found if at not in chosen.members]
    return {at for at in others if chosen.by_key or _is_share(found[at])}


def _is_share(value: object) -> bool:
    """Whether a state dict is one rank's part, which means nothing without the others'."""
    return any(isinstance(leaf, ShardedTensorOnRank | DTensorOnRank) for _, leaf in walk(value))


def _kind(value: object) -> str:
    if _is_tensor_or_shard(value):
        return "tensor"
    name = getattr(value, "class_name", None)
    return f"object of class {name}" if name else type(value).__name__


def _below(value: object, path: KeyPath) -> Iterator[tuple[object, object]]:
    """What a container below holds."""
    for part in path:
        value = dict(_children(value))[part]
    return _children(value)


def _is_of_optimizer(key: object) -> bool:
    return isinstance(key, str) and key.partition(".")[0] in ("state", "param_groups")


def _refuse_other_forms(value: object, path: Path) -> None:
    """Raise `UnsupportedError` for what is no state dict, or is one of a library with its own way out."""
    if isinstance(value, Opaque) and value.class_name == BY_PICKLE:
        raise UnsupportedError(
            f"{path}: pickle.dump wrote it, and its tensors lie inside of the pickle",
            hint="Save it again in Python: import pickle, torch; torch.save(pickle.load(open("
            f"{str(path)!r}, 'rb')), 'saved.pt') and convert saved.pt.",
        )
    if not isinstance(value, dict | list | tuple):
        raise UnsupportedError(
            f"{path}: holds one {_kind(value)}, not a state dict",
            hint=state_dicts_of(str(path)) if isinstance(value, Opaque) else "Give the file of a state dict.",
        )
    if isinstance(value, dict) and {"ds_config", "ds_version"} & value.keys():
        raise UnsupportedError(
            f"{path}: is a DeepSpeed checkpoint",
            hint="Run DeepSpeed's own zero_to_fp32.py or ds_to_universal first and convert what it writes.",
        )
    if is_olmo_local(value):
        raise UnsupportedError(f"{path}: is a rank of OLMo's local checkpoints", hint=OLMO_LOCAL)


def _optimizers(value: object, at: KeyPath) -> Iterator[tuple[KeyPath, dict[object, object]]]:
    if is_optimizer(value):
        yield at, value
    elif (flattened := unflattened(value)) is not None:
        yield at, flattened
    elif len(at) < _DEPTH:
        for key, item in _children(value):
            yield from _optimizers(item, (*at, key))


def _children(value: object) -> Iterator[tuple[object, object]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list | tuple) and len(value) < 64:
        yield from enumerate(value)


def _models(
    value: object,
    at: KeyPath,
    taken: set[KeyPath],
    looks: Callable[[Mapping[str, object], KeyPath], bool],
    kinds: type | UnionType,
) -> Iterator[tuple[KeyPath, dict[str, object]]]:
    """Mappings from names to tensors, outside optimizers, that look like a model.

    Args:
        kinds: what is looked into on the way to them.
    """
    if at in taken or len(at) > _DEPTH:
        return
    if not isinstance(value, dict):
        for key, item in _children(value) if isinstance(value, kinds) else ():
            yield from _models(item, (*at, key), taken, looks, kinds)
        return
    tensors = {key: item for key, item in value.items() if isinstance(key, str) and _is_tensor_or_shard(item)}
    below = [(key, item) for key, item in value.items() if isinstance(item, kinds)]
    inside = [found for key, item in below for found in _models(item, (*at, key), taken, looks, kinds)]
    if looks(tensors, at) and not _stands_beside(tensors, inside, at):
        yield at, tensors
    else:
        yield from inside


def _stands_beside(
    tensors: Mapping[str, object], inside: Sequence[tuple[KeyPath, Mapping[str, object]]], at: KeyPath
) -> bool:
    """Whether tensors are records of a job (losses, means) beside the model, and not the model themselves."""
    if any("." in name for name in tensors):
        return False
    return any(
        (len(path) == len(at) + 1 and path[-1] in MODEL_NAMES) or len(model) > len(tensors)
        for path, model in inside
    )


def _looks_like_model(tensors: Mapping[str, object], at: KeyPath) -> bool:
    # Losses and scales kept beside a model are floating too, but 0-dim.
    return any(
        getattr(item, "dtype", None) not in _WHOLE_NUMBERS and getattr(item, "shape", ())
        for item in tensors.values()
    )


def _is_named_like_model(tensors: Mapping[str, object], at: KeyPath) -> bool:
    """For whole numbers, which quantised models have, and states of generators and samplers too."""
    shaped = [name for name, item in tensors.items() if getattr(item, "shape", ())]
    if at and at[-1] in MODEL_NAMES:
        return bool(shaped)
    return any(name.rpartition(".")[2].endswith(PARAMETER_NAMES) for name in shaped)


def _extra_name(at: KeyPath, chosen: Choice) -> str:
    if at[:-1] in chosen.members and is_module_state(at[-1]):
        return module_state_key(clean(dotted(at[len(chosen.root) :])))
    return dotted(at)


def _extras(
    value: object, at: KeyPath, opened: tuple[KeyPath, ...], taken: set[KeyPath]
) -> Iterator[tuple[KeyPath, object]]:
    """What is neither model nor optimizer; containers on the way to them are opened, others kept whole."""
    for key, item in _children(value):
        here = (*at, key)
        if here in taken:
            continue
        if any(target[: len(here)] == here for target in opened):
            yield from _extras(item, here, opened, taken)
        else:
            yield here, item
