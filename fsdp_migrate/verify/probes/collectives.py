"""Counts collectives per optimizer step, and those that reduce gradients per backward pass.

FSDP1 and FSDP2 both call `torch.distributed.<name>` through the module, so the module's attributes are
wrapped. Torch 2.13 renamed `reduce_scatter_tensor` and `all_gather_into_tensor` to `..._single`; both names
are counted as one.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from fsdp_migrate.verify.calls import A_DTENSOR, Call
from fsdp_migrate.verify.fixed_order import replacement
from fsdp_migrate.verify.probes.session import Session

_NAMES = {
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "all_gather_into_tensor": "all-gather",
    "all_gather_single": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "reduce_scatter_tensor": "reduce-scatter",
    "reduce_scatter_single": "reduce-scatter",
    "all_to_all_single": "all-to-all",
    "broadcast": "broadcast",
    "barrier": "barrier",
}
_FUNCTIONAL = {
    name: _NAMES.get(name, "all-gather")
    for name in (
        *("all_reduce", "all_gather_tensor", "all_gather_single", "broadcast"),
        *("reduce_scatter_tensor", "reduce_scatter_single", "all_to_all_single"),
    )
}
_FRAMES = 8


def attach(session: Session) -> None:
    """Wrap the collectives of `torch.distributed`."""
    nesting = [0]

    def counted(collective: Callable[..., Any], words: str) -> Callable[..., Any]:
        ordered = replacement(words)

        @functools.wraps(collective)
        def wrapper(*arguments: Any, **keywords: Any) -> Any:
            if nesting[0] or session.probing_depth:
                return collective(*arguments, **keywords)
            nesting[0] += 1
            try:
                reduces = session.in_backward and words in ("reduce-scatter", "all-reduce")
                _count(session, words, bool(reduces), arguments, keywords)
                with session.span("communication"):
                    if reduces and session.fixed_order and ordered is not None:
                        done, result = ordered(arguments, keywords)
                        if done:
                            return result
                    return collective(*arguments, **keywords)
            finally:
                nesting[0] -= 1

        return wrapper

    for name, words in _NAMES.items():
        collective = getattr(dist, name, None)
        if collective is not None:
            setattr(dist, name, counted(collective, words))
    _functional(session, nesting)


def _functional(session: Session, nesting: list[int]) -> None:
    """Wrap what DTensors communicate by, such as `full_tensor()` and the norm of sharded gradients.

    A compiled program contains these calls, and not the functions that are wrapped here.
    """
    functions: Any = sys.modules.get("torch.distributed._functional_collectives")
    if functions is None:
        return

    def logged(collective: Callable[..., Any], words: str) -> Callable[..., Any]:
        @functools.wraps(collective)
        def wrapper(*arguments: Any, **keywords: Any) -> Any:
            if nesting[0] or session.probing_depth or _is_compiling():
                return collective(*arguments, **keywords)
            ranks = _ranks_of_mesh((*arguments, *keywords.values()))
            tensor, *_ = _operands(arguments, keywords)
            if ranks > 1 and tensor is not None:
                session.now.collectives[words] += 1
                size = tensor.numel() * tensor.element_size()
                session.now.bytes[words] += size * ranks if words == "all-gather" else size
                dtype = str(tensor.dtype).removeprefix("torch.")
                backward = bool(session.in_backward)
                numel = 0 if words == "all-to-all" else tensor.numel()  # of each rank's own
                session.log_call(Call(session.step, backward, words, numel, dtype, ranks, A_DTENSOR))
            nesting[0] += 1
            try:
                return collective(*arguments, **keywords)
            finally:
                nesting[0] -= 1

        return wrapper

    for name, words in _FUNCTIONAL.items():
        if hasattr(functions, name):
            setattr(functions, name, logged(getattr(functions, name), words))


def _is_compiling() -> bool:
    compiler = getattr(torch, "compiler", None)
    asks = getattr(compiler, "is_compiling", None)
    return bool(asks is not None and asks())


def _ranks_of_mesh(values: tuple[Any, ...]) -> int:
    """Ranks of the group that a functional collective is given: a mesh and its dimension, or a group."""
    for one in values:
        if isinstance(one, tuple) and len(one) == 2 and hasattr(one[0], "device_type"):
            return int(one[0].size(one[1]))
        if isinstance(one, dist.ProcessGroup):
            return dist.get_world_size(one)
    return dist.get_world_size()


def _count(
    session: Session, words: str, reduces: bool, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> None:
    session.now.collectives[words] += 1
    tensor, group, size = _operands(arguments, keywords)
    ranks = dist.get_world_size(group)
    if ranks > 1:
        session.log_call(_call(session, words, tensor, ranks))
        session.now.bytes[words] += size
    alone = ranks == 1  # FSDP1 reduces over itself there, FSDP2 does not
    if reduces and not alone and tensor is not None and tensor.is_floating_point() and session.now.reductions:
        session.now.reductions[-1] += 1
        session.now.reduce_dtypes.add(str(tensor.dtype).removeprefix("torch."))


def _operands(
    arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[Tensor | None, dist.ProcessGroup | None, int]:
    """The first tensor, the group, and the bytes of the whole that is gathered, scattered or reduced.

    A list of tensors is one whole.
    """
    first: Tensor | None = None
    group: dist.ProcessGroup | None = None
    largest = 0
    for one in (*arguments, *keywords.values()):
        if isinstance(one, Tensor):
            tensors = [one]
        elif isinstance(one, list | tuple):
            tensors = [each for each in one if isinstance(each, Tensor)]
        else:
            if group is None and one is not None and isinstance(one, dist.ProcessGroup):  # which is slow
                group = one
            continue
        if tensors:
            first = tensors[0] if first is None else first
            largest = max(largest, sum(each.numel() * each.element_size() for each in tensors))
    return first, group, largest


def _call(session: Session, words: str, tensor: Tensor | None, ranks: int) -> Call:
    numel, dtype = (0, "") if tensor is None else (tensor.numel(), str(tensor.dtype).removeprefix("torch."))
    where = _unit_in_frames(session) or session.unit
    return Call(session.step, bool(session.in_backward), words, numel, dtype, ranks, where)


def _unit_in_frames(session: Session) -> str:
    """The unit that FSDP makes a call for, taken from its own frames; "" for calls of others.

    Relies on `_fsdp_param_group.py` (`self._module_fqn`) and `_runtime_utils.py`, `_flat_param.py` (`handle`,
    `self._fully_sharded_module`).
    """
    frame: FrameType | None = sys._getframe(3)
    for _ in range(_FRAMES):
        if frame is None:
            return ""
        name = frame.f_code.co_filename
        if name.endswith("_fsdp_param_group.py"):
            return str(getattr(frame.f_locals.get("self"), "_module_fqn", "")) or "(root)"
        if name.endswith(("_flat_param.py", "_runtime_utils.py")):
            handle = frame.f_locals.get("handle") or frame.f_locals.get("self")
            module = getattr(handle, "_fully_sharded_module", None)
            if module is not None:
                known = session.units.get(module)
                return "" if known is None else known or "(root)"
        frame = frame.f_back
    return ""
