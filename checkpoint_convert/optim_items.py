"""Optimizer state as `torch.distributed.checkpoint.state_dict.get_optimizer_state_dict` lays it out.

`optim.state.<fqn>.<name>` and `optim.param_groups.<i>.<option>`; every parameter has its own 0-dim `step`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from checkpoint_convert.errors import UnsupportedError
from checkpoint_convert.model import (
    BLOCK_BYTES,
    Contents,
    DType,
    Notice,
    OptimizerContents,
    Value,
    numel,
)
from checkpoint_convert.optim_groups import FilledGroup, complete_group
from checkpoint_convert.tensor_sources import MemoryTensor, SliceTensor
from checkpoint_convert.values import Leaf, is_tensor, leaves

STATE_FILLED = "CK211"
STATE_MISSING = "CK212"
STATE_UNLISTED = "CK213"
OPTIONS_FILLED = "CK214"


@dataclass(frozen=True, slots=True)
class Zeros:
    """A tensor of zeros."""

    dtype: DType
    shape: tuple[int, ...]

    def blocks(self, start: int, stop: int) -> Iterator[memoryview]:
        """See `TensorSource.blocks`."""
        left = (stop - start) * self.dtype.itemsize
        block = memoryview(bytes(min(left, BLOCK_BYTES)))
        while left > 0:
            yield block[:left]
            left -= len(block)


@dataclass(frozen=True, slots=True)
class OptimizerValues:
    """The optimizer's part of the output."""

    leaves: tuple[Leaf, ...]
    notices: tuple[Notice, ...]


def optimizer_values(contents: Contents, *, fill_missing: bool) -> OptimizerValues:
    """Lay out the optimizer state of a source.

    Args:
        fill_missing: give parameters without state zeros and step 0, as a fresh optimizer has after its
            first `get_optimizer_state_dict`.
    """
    optimizer = contents.optimizer
    assert optimizer is not None
    notices: list[Notice] = []
    state = _under_listed_names(optimizer, contents.aliases, notices)
    missing = [name for group in optimizer.groups for name in group.params if state and not state.get(name)]
    if missing:
        text = f"no optimizer state in the source for {', '.join(missing)} (frozen, or never updated)"
        if fill_missing:
            state = {**state, **_zero_state(contents, state, missing)}
            notices.append(Notice(STATE_FILLED, f"{text}: filled with zeros and step 0"))
        else:
            notices.append(Notice(STATE_MISSING, f"{text}: none written; --fill-optim-state writes zeros"))
    if not state and any(group.params and "betas" in group.options for group in optimizer.groups):
        text = (
            "no parameter has optimizer state (saved before the first step?); loading it into an Adam under "
            "FSDP2 fails: convert with --only model, and start the optimizer anew"
        )
        notices.append(Notice(STATE_MISSING, text))
    # torch flattens an empty state away; written whole, a reader still sees that this is an optimizer.
    found = list(_state_leaves(state)) or [Leaf(("optim", "state"), {})]
    found += _group_leaves(optimizer, notices)
    return OptimizerValues(tuple(found), tuple(notices))


def _under_listed_names(
    optimizer: OptimizerContents, aliases: Mapping[str, str], notices: list[Notice]
) -> Mapping[str, Mapping[str, Value]]:
    """State under the names that the groups list: of tied ones, `set_state_dict` knows no other."""
    listed = {name for group in optimizer.groups for name in group.params}
    if not listed:
        return optimizer.state
    tied: dict[str, list[str]] = {}
    for name, first in aliases.items():
        tied.setdefault(aliases.get(first, first), []).append(name)
    family = {name: [first, *names] for first, names in tied.items() for name in (first, *names)}
    renamed: dict[str, Mapping[str, Value]] = {}
    loose: list[str] = []
    for name, values in optimizer.state.items():
        target = name
        if name not in listed:
            candidates = [other for other in family.get(name, ()) if other in listed]
            if candidates and candidates[0] not in optimizer.state:
                target = candidates[0]
            else:
                loose.append(name)
        renamed[target] = values
    if loose:
        notices.append(
            Notice(
                STATE_UNLISTED,
                f"state of parameters that no group lists: {', '.join(loose)}",
            )
        )
    return renamed


def _state_leaves(state: Mapping[str, Mapping[str, Value]]) -> Iterator[Leaf]:
    for fqn, values in state.items():
        for name, value in values.items():
            yield from leaves(("optim", "state", fqn, name), _step_tensor(value) if name == "step" else value)


def _step_tensor(value: Value) -> Value:
    """`step` as torch's optimizers keep it since 1.12: a 0-dim tensor, float32 where it was a number."""
    if is_tensor(value):
        return SliceTensor(value, 0, ()) if value.shape != () and numel(value.shape) == 1 else value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return MemoryTensor(DType.FLOAT32, (), struct.pack("<f", value))
    return value


def _group_leaves(optimizer: OptimizerContents, notices: list[Notice]) -> list[Leaf]:
    found: list[Leaf] = []
    filled: dict[tuple[str, ...], list[int]] = {}
    for number, group in enumerate(optimizer.groups):
        path = ("optim", "param_groups", number)
        done: FilledGroup = complete_group(group.options)
        for option, value in done.options.items():
            found += leaves((*path, option), value)
        found.append(Leaf((*path, "params"), list(group.params)))
        if done.filled:
            key = (done.optimizer, "" if done.sure else "unsure", *done.filled)
            filled.setdefault(key, []).append(number)
    for (name, unsure, *names), numbers in filled.items():
        text = (
            f"param_groups {', '.join(map(str, numbers))}: filled from the defaults of torch.optim.{name}: "
            f"{', '.join(names)}"
        )
        if unsure:
            text += " (whether it was Adam or AdamW cannot be told; weight decay is taken as decoupled)"
        notices.append(Notice(OPTIONS_FILLED, text))
    return found


def _zero_state(
    contents: Contents, state: Mapping[str, Mapping[str, Value]], missing: list[str]
) -> dict[str, Mapping[str, Value]]:
    """A fresh state for each name, of the kinds the other parameters have."""
    kinds: dict[str, tuple[bool, DType]] = {}
    for fqn, values in state.items():
        model_tensor = contents.model.get(fqn)
        for name, value in values.items():
            tensor = _step_tensor(value) if name == "step" else value
            if is_tensor(tensor) and name not in kinds:
                per_element = model_tensor is not None and tensor.shape == model_tensor.shape != ()
                kinds[name] = (per_element, tensor.dtype)
    filled: dict[str, Mapping[str, Value]] = {}
    for fqn in missing:
        parameter = contents.model.get(fqn) or contents.model.get(contents.aliases.get(fqn, ""))
        if parameter is None:
            raise UnsupportedError(
                f"--fill-optim-state: the shape of {fqn} is not known, because the source holds no model",
                hint="name the model's checkpoint as well",
            )
        filled[fqn] = {
            name: Zeros(dtype, parameter.shape if per_element else ())
            for name, (per_element, dtype) in kinds.items()
        }
    return filled
