"""What one file holds: which part of its nested value is the model, which the optimizer, which the rest.

Writers nest as they like (`{"model": ..., "optimizer": ..., "epoch": 3}`, `{"state": {"model": ...}}`); what
a part is shows in its contents. Where contents do not decide, the usual names do; where these do not
either, it is an error that names the candidates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from checkpoint_convert.errors import AmbiguousFormatError, UnsupportedError
from checkpoint_convert.model import DType
from checkpoint_convert.optim_state import SavedOptimizer, is_optimizer, read_saved
from checkpoint_convert.readers.find import OLMO_LOCAL, is_olmo_local
from checkpoint_convert.readers.flattened_optim import unflattened
from checkpoint_convert.readers.names import clean
from checkpoint_convert.readers.options import ReadOptions
from checkpoint_convert.readers.strange_tensors import refuse_strange_tensors
from checkpoint_convert.torch_objects import DTensorOnRank, ShardedTensorOnRank
from checkpoint_convert.values import is_module_state, is_tensor, module_state_key

FAIRSCALE = "shard_metadata"
"""The key that files of fairscale's FSDP have beside the model."""

_DEPTH = 5
_MODEL_NAMES = (
    "model",
    "state_dict",
    "model_state_dict",
    "model_state",
    "module",
    "app",
    "network",
    "net",
    "weights",
    "_orig_mod",
)
_FLOATING = (DType.FLOAT64, DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16, DType.COMPLEX64)

Path_ = tuple[object, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Holding:
    """One file's (or one DCP directory's) parts.

    Attributes:
        model: tensors by the names the file gives them; None where it holds no model.
        optimizer: None where it holds none.
        extras: the rest, by the file's own keys; keys of nested containers joined by dots. What the model's
            modules say of themselves (`get_extra_state`) is by `module_state_key`.
    """

    path: Path
    model: Mapping[str, object] | None
    optimizer: SavedOptimizer | None
    extras: Mapping[str, object] = field(default_factory=dict)


def _is_tensor_or_shard(value: object) -> bool:
    return is_tensor(value) or isinstance(value, ShardedTensorOnRank | DTensorOnRank)


def read_holding(value: object, path: Path, options: ReadOptions) -> Holding:
    """Tell a file's parts apart.

    Raises:
        AmbiguousFormatError: two parts could be the model, or there are two optimizers.
        UnsupportedError: neither model nor optimizer nor plain values, a pickled module, say; or a tensor of
            theirs has no elements that lie in the file.
    """
    if not isinstance(value, dict | list | tuple):
        raise UnsupportedError(
            f"{path}: holds one {_kind(value)}, not a state dict",
            hint="Save model.state_dict() instead of the object itself, and convert that.",
        )
    _refuse_deepspeed(value, path)
    _refuse_olmo_local(value, path)
    optimizers = dict(_optimizers(value, ()))
    models = dict(_models(value, (), set(optimizers)))
    optimizer_at = _one_optimizer(list(optimizers), path)
    known = (options.model_key,)
    model_at = known if known in models else _one_model(models, path)
    model = models[model_at] if model_at is not None else None
    if model_at is not None and options.use_model and not options.only_listed:
        refuse_strange_tensors(_below(value, model_at), path)
    taken = {(*model_at, name) for name in model or ()} if model_at is not None else set()
    if optimizer_at is not None:
        taken |= {(*optimizer_at, key) for key, _ in _below(value, optimizer_at) if _is_of_optimizer(key)}
    extras = {
        _extra_name(at, model_at): item for at, item in _extras(value, (), (model_at, optimizer_at), taken)
    }
    optimizer = None
    if optimizer_at is not None:
        optimizer = read_saved(optimizers[optimizer_at], str(path))
        if options.use_optimizer and not options.only_listed:
            for key, state in optimizer.state.items():
                refuse_strange_tensors(((f"{name} of {key}", item) for name, item in state.items()), path)
    return Holding(path, model, optimizer, extras)


def _kind(value: object) -> str:
    if _is_tensor_or_shard(value):
        return "tensor"
    name = getattr(value, "class_name", None)
    return f"object of class {name}" if name else type(value).__name__


def _below(value: object, path: Path_) -> Iterator[tuple[object, object]]:
    """What a container below holds."""
    for part in path:
        value = dict(_children(value))[part]
    return _children(value)


def _is_of_optimizer(key: object) -> bool:
    return isinstance(key, str) and key.partition(".")[0] in ("state", "param_groups")


def _refuse_deepspeed(value: object, path: Path) -> None:
    if isinstance(value, dict) and {"ds_config", "ds_version"} & value.keys():
        raise UnsupportedError(
            f"{path}: is a DeepSpeed checkpoint",
            hint="Run DeepSpeed's own zero_to_fp32.py or ds_to_universal first and convert what it writes.",
        )


def _refuse_olmo_local(value: object, path: Path) -> None:
    if is_olmo_local(value):
        raise UnsupportedError(f"{path}: is a rank of OLMo's local checkpoints", hint=OLMO_LOCAL)


def _optimizers(value: object, at: Path_) -> Iterator[tuple[Path_, dict[object, object]]]:
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


def _models(value: object, at: Path_, taken: set[Path_]) -> Iterator[tuple[Path_, dict[str, object]]]:
    """Mappings from names to tensors, outside optimizers; a nested one is found before the one around it."""
    if at in taken or not isinstance(value, dict) or len(at) > _DEPTH:
        return
    tensors = {key: item for key, item in value.items() if isinstance(key, str) and _is_tensor_or_shard(item)}
    if _looks_like_model(tensors):
        yield at, tensors
        return
    for key, item in value.items():
        yield from _models(item, (*at, key), taken)


def _looks_like_model(tensors: Mapping[str, object]) -> bool:
    # Losses and scales kept beside a model are floating too, but 0-dim.
    return any(
        getattr(item, "dtype", None) in _FLOATING and getattr(item, "shape", ()) for item in tensors.values()
    )


def _one_optimizer(found: list[Path_], path: Path) -> Path_ | None:
    if len(found) > 1:
        named = ", ".join(_dotted(at) or "the file itself" for at in found)
        raise AmbiguousFormatError(
            f"{path}: holds {len(found)} optimizers: {named}",
            hint="Save the one you want in a file of its own, or convert the model alone (--only model).",
        )
    return found[0] if found else None


def _one_model(models: Mapping[Path_, object], path: Path) -> Path_ | None:
    if len(models) <= 1:
        return next(iter(models), None)
    known = [at for at in models if at and at[-1] in _MODEL_NAMES] or [
        at for at in models if any(part in _MODEL_NAMES for part in at)
    ]
    if len(known) == 1:
        return known[0]
    named = ", ".join(_dotted(at) for at in (known or models))
    raise AmbiguousFormatError(
        f"{path}: more than one part could be the model: {named}",
        hint="Save the one you want in a file of its own and convert that.",
    )


def _dotted(at: Path_) -> str:
    return ".".join(map(str, at))


def _extra_name(at: Path_, model_at: Path_ | None) -> str:
    if model_at is not None and at[:-1] == model_at and is_module_state(at[-1]):
        return module_state_key(clean(str(at[-1])))
    return _dotted(at)


def _extras(
    value: object, at: Path_, opened: tuple[Path_ | None, ...], taken: set[Path_]
) -> Iterator[tuple[Path_, object]]:
    """What is neither model nor optimizer; containers on the way to them are opened, others kept whole."""
    for key, item in _children(value):
        here = (*at, key)
        if here in taken:
            continue
        if any(target is not None and target[: len(here)] == here for target in opened):
            yield from _extras(item, here, opened, taken)
        else:
            yield here, item
