"""Optimizer state by parameter name, from every form FSDP1 jobs saved it in.

The forms (`torch/distributed/fsdp/_optim_utils.py`, `fully_sharded_data_parallel.py`): keyed by FQN
(`optim_state_dict`, `full_optim_state_dict`, `sharded_optim_state_dict`), keyed by parameter number
(`rekey_optim_state_dict`, or an unsharded `optimizer.state_dict()`), and the optimizer's own state over
flat shards, which `raw_state` maps.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard, cast

from checkpoint_convert.errors import LayoutError, UnreadableError, UnsupportedError
from checkpoint_convert.model import (
    DType,
    Opaque,
    OptimizerContents,
    ParamGroup,
    TensorSource,
    Value,
    numel,
)
from checkpoint_convert.tensor_sources import MemoryTensor
from checkpoint_convert.values import is_tensor

_EIGHT_BIT = ("absmax", "qmap", "absmax1", "qmap1", "absmax2", "qmap2", "new_max1", "codes", "scale", "qmap3")
_STATE_NAMES = frozenset(
    {"step", "exp_avg", "exp_avg_sq", "momentum_buffer", "square_avg", "sum", "variance"}
)
ELEMENTWISE = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "square_avg", "exp_inf")
"""States that have an element for each of the parameter's, whatever else an optimizer keeps beside them."""
_FLOAT_CODES = {
    DType.FLOAT32: "f",
    DType.FLOAT64: "d",
    DType.FLOAT16: "e",
    DType.INT64: "q",
    DType.INT32: "i",
}


@dataclass(frozen=True, slots=True, eq=False)
class SavedOptimizer:
    """An optimizer's state dict as a file holds it.

    Attributes:
        state: by FQN or parameter number, then by state name.
        groups: the `param_groups`.
    """

    state: Mapping[object, Mapping[str, object]]
    groups: Sequence[Mapping[str, object]]

    @property
    def by_number(self) -> bool:
        """Whether parameters are numbered, not named."""
        keys = list(self.state) or listed_keys(self)
        return bool(keys) and all(type(key) is int for key in keys)


def is_optimizer(value: object) -> TypeGuard[dict[object, object]]:
    """Whether a plain value is an optimizer's state dict: by its groups, else by its state's names."""
    if not isinstance(value, dict) or not isinstance(value.get("state", {}), dict):
        return False
    groups = value.get("param_groups")
    if isinstance(groups, list | tuple):  # DCP leaves an empty state out altogether
        return "state" in value or (
            bool(groups) and all(isinstance(g, dict) and "params" in g for g in groups)
        )
    entries = list(value.get("state", {}).values())
    return set(value) == {"state"} and bool(entries) and all(map(_is_state_entry, entries))


def _is_state_entry(entry: object) -> bool:
    return isinstance(entry, dict) and bool(entry.keys() & _STATE_NAMES)


def read_saved(value: Mapping[object, object], where: str) -> SavedOptimizer:
    """Check the shape of an optimizer's state dict.

    Raises:
        UnreadableError: a parameter's state, or a group, is no dictionary.
    """
    state, groups = (
        cast("dict[object, object]", value.get("state", {})),
        cast("list[object]", value.get("param_groups", [])),
    )
    if any(isinstance(key, tuple) for key in state):
        raise UnsupportedError(
            f"{where}: is optimizer state flattened for one job (shard_full_optim_state_dict or "
            "flatten_sharded_optim_state_dict), which says nothing of the shards' places",
            hint="Give what FSDP.optim_state_dict() or optimizer.state_dict() returned.",
        )
    for key, entry in state.items():
        if not isinstance(entry, dict) or not all(isinstance(name, str) for name in entry):
            raise UnreadableError(
                f"{where}: the optimizer state of {key!r} is no dictionary of named values",
                hint="Give the result of optimizer.state_dict() or FSDP.optim_state_dict().",
            )
    for number, group in enumerate(groups):
        if not isinstance(group, dict) or not isinstance(group.get("params"), list | tuple):
            raise UnreadableError(
                f"{where}: parameter group {number} lists no parameters",
                hint="Give the result of optimizer.state_dict() or FSDP.optim_state_dict().",
            )
    return SavedOptimizer(
        cast("dict[object, Mapping[str, object]]", state), cast("list[Mapping[str, object]]", list(groups))
    )


def refuse_joint_state(saved: SavedOptimizer, where: str) -> None:
    """LBFGS keeps the history of all parameters, flattened one after another, with the first of them.

    Raises:
        UnsupportedError: this is such state.
    """
    if any("old_dirs" in entry or "func_evals" in entry for entry in saved.state.values()):
        raise UnsupportedError(
            f"{where}: is state of LBFGS, which is about all parameters together and not about each",
            hint="Convert the model alone (--only model); the optimizer must start anew.",
        )


def group_keys(group: Mapping[str, object]) -> Sequence[object]:
    """The names or numbers a parameter group lists."""
    return cast("Sequence[object]", group["params"])


def listed_keys(saved: SavedOptimizer) -> list[object]:
    """The names or numbers that all groups list, in order."""
    return [key for group in saved.groups for key in group_keys(group)]


def named_contents(
    saved: SavedOptimizer, names: Mapping[object, str], shapes: Mapping[str, tuple[int, ...]], where: str
) -> OptimizerContents:
    """State by FQN.

    Args:
        names: the FQN of every key of the state and of the groups.
        shapes: of the model's parameters; empty where no model is at hand.

    Raises:
        LayoutError: a key has no name, or a state's size is not its parameter's.
        UnsupportedError: a state that cannot be converted, by name.
    """
    state: dict[str, Mapping[str, Value]] = {}
    for key, entry in saved.state.items():
        if key not in names:
            raise LayoutError(
                f"{where}: optimizer state of {key!r}, which no parameter is known as",
                hint="Are the model and the optimizer of the same run?",
            )
        name = names[key]
        state[name] = {
            item: state_value(value, f"{where}: optimizer state {name}.{item}", item)
            for item, value in entry.items()
        }
        _check_shapes(name, state[name], shapes.get(name), where)
    return OptimizerContents(state, [param_group(group, names, where) for group in saved.groups])


def param_group(group: Mapping[str, object], names: Mapping[object, str], where: str) -> ParamGroup:
    """A group with its parameters named; `param_names`, where an optimizer was given names, repeats them."""
    missing = [key for key in group_keys(group) if key not in names]
    if missing:
        raise LayoutError(
            f"{where}: a parameter group lists {missing[0]!r}, which no parameter is known as",
            hint="Are the model and the optimizer of the same run?",
        )
    options = {key: value for key, value in group.items() if key != "params"}
    params = tuple(names[key] for key in group_keys(group))
    if "param_names" in options:
        options["param_names"] = list(params)
    return ParamGroup(params, cast("Mapping[str, Value]", options))


def state_value(value: object, where: str, name: str) -> Value:
    """One state value, checked: a tensor, a number, or an error; `step` becomes a 0-dim tensor of its own.

    FSDP1 lets all parameters of a unit share one `step` tensor; FSDP2's optimizer would then count it up
    once per parameter.
    """
    refuse_eight_bit(value, where, name)
    if name == "step" and isinstance(value, int | float):
        return MemoryTensor(DType.FLOAT32, (), struct.pack("<f", value))
    if name == "step" and is_tensor(value) and numel(value.shape) == 1:
        return MemoryTensor(value.dtype, (), read_all(value))
    if isinstance(value, Opaque):
        raise UnsupportedError(
            f"{where} is an object of class {value.class_name}",
            hint="Convert the model alone (--only model), or save the state as plain tensors.",
        )
    return cast("Value", value)


def refuse_eight_bit(value: object, where: str, name: str) -> None:
    """Quantised states are laid out in blocks that know nothing of parameters.

    Raises:
        UnsupportedError: the value is part of one.
    """
    quantised = isinstance(value, Opaque) and ("8bit" in value.class_name or "4bit" in value.class_name)
    quantised = quantised or name in _EIGHT_BIT
    if quantised or (
        is_tensor(value) and value.dtype in (DType.UINT8, DType.INT8) and numel(value.shape) > 1
    ):
        raise UnsupportedError(
            f"{where} is part of an 8-bit optimizer's state, whose blocks do not follow the parameters",
            hint="Convert the model alone (--only model); the optimizer must start anew.",
        )


def read_all(source: TensorSource) -> bytes:
    """All bytes of a small tensor."""
    return b"".join(bytes(block) for block in source.blocks(0, numel(source.shape)))


def number_of(value: object) -> float | int | None:
    """The number a plain value or one-element tensor is; None for anything else."""
    if isinstance(value, int | float):
        return value
    if is_tensor(value) and numel(value.shape) == 1 and value.dtype in _FLOAT_CODES:
        number: float | int = struct.unpack(f"<{_FLOAT_CODES[value.dtype]}", read_all(value))[0]
        return number
    return None


def state_shapes(shape: tuple[int, ...]) -> set[tuple[int, ...]]:
    """Shapes of a whole parameter's state: its own, or one row and one column of it (Adafactor's factors)."""
    rows, columns = shape[:-1], (*shape[:-2], *shape[-1:])
    return {shape, rows, columns, (*rows, 1), (*shape[:-2], 1, *shape[-1:])}


def has_shape(entry: Mapping[str, object], shape: tuple[int, ...]) -> bool:
    """Whether state may be that of a whole parameter: by the states that have its shape, else by any."""
    shapes = {
        name: value.shape for name, value in entry.items() if is_tensor(value) and numel(value.shape) > 1
    }
    own = [shapes[name] for name in ELEMENTWISE if name in shapes]
    if own:
        return all(one == shape for one in own)
    return not shapes or not state_shapes(shape).isdisjoint(shapes.values())


def _check_shapes(name: str, state: Mapping[str, Value], shape: tuple[int, ...] | None, where: str) -> None:
    if shape is None:
        return
    fitting = state_shapes(shape)
    for item, value in state.items():
        possible = {shape} if item in ELEMENTWISE else fitting
        if is_tensor(value) and numel(value.shape) != 1 and value.shape not in possible:
            raise LayoutError(
                f"{where}: optimizer state {name}.{item} has size {value.shape}, its parameter {shape}",
                hint="Are the model and the optimizer of the same run?",
            )
