"""Collectives that gloo does not have in older releases of torch, or has wrong, made of those it has.

FSDP1 gathers into one tensor and scatters the sum of one; gloo can do neither in torch 2.1, and nothing in
bfloat16. FSDP2 asks for averages: up to torch 2.7 gloo refuses to average in `all_reduce`, and up to 2.8
`reduce_scatter_tensor` gives the sum without a word, so that gradients are as many times too large as there
are ranks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from fsdp_migrate.verify.releases import GLOO_AVERAGES, release

Say = Callable[[str], None]
_REFUSED = "support"
"""In what gloo says of what it lacks: "no support for _allgather_base", "does not support reduce_scatter"."""
_NOT_A_TYPE = "scalar type"
"""In what it says of bfloat16."""
_NAMES = {
    "all_gather_into_tensor": ("output_tensor", "input_tensor", "group", "async_op"),
    "reduce_scatter_tensor": ("output", "input", "op", "group", "async_op"),
    "all_reduce": ("tensor", "op", "group", "async_op"),
    "all_gather": ("tensor_list", "tensor", "group", "async_op"),
    "all_to_all_single": ("output", "input", "output_split_sizes", "input_split_sizes", "group", "async_op"),
    "broadcast": ("tensor", "src", "group", "async_op"),
}
"""Parameters, in their order."""


def apply(say: Say) -> None:
    """Wrap the collectives in this process; before probes wrap them, which then count one call."""
    if release(torch.__version__) >= GLOO_AVERAGES:
        return
    for name, parameters in _NAMES.items():
        collective = getattr(dist, name)
        setattr(dist, name, _Made(name, parameters, collective, say).wrapped())


class _Done:
    """What an asynchronous call gives here: it has been done before it returns."""

    def wait(self, *_: object) -> bool:
        return True

    def is_completed(self) -> bool:
        return True


class _Made:
    """One collective, done by others where this gloo cannot do it."""

    def __init__(self, name: str, parameters: tuple[str, ...], own: Callable[..., Any], say: Say) -> None:
        self.name, self.parameters, self.own, self.say = name, parameters, own, say
        self.lacking = False

    def wrapped(self) -> Callable[..., Any]:
        """What takes the place of the collective."""

        @functools.wraps(self.own)
        def collective(*arguments: Any, **keywords: Any) -> Any:
            call = {**dict(zip(self.parameters, arguments, strict=False)), **keywords}
            if "gloo" not in str(dist.get_backend(call.get("group"))):
                return self.own(*arguments, **keywords)
            is_async = call.pop("async_op", False)
            averages = call.get("op") is not None and call["op"] == dist.ReduceOp.AVG
            if averages:
                self.say(f"{self.name}: this gloo has no averages; the sum is divided")
                call["op"] = dist.ReduceOp.SUM
            self._do(call)
            if averages:
                call[self.parameters[0]].div_(dist.get_world_size(call.get("group")))
            return _Done() if is_async else None

        return collective

    def _do(self, call: dict[str, Any]) -> None:
        """What is refused is refused before anything was sent, and on every rank alike."""
        if self.lacking:
            _OTHERS[self.name](call)
            return
        if self.name == "all_gather" and len({part.numel() for part in call["tensor_list"]}) > 1:
            self.say("all_gather: this gloo gathers parts of one size alone; each is broadcast")
            _gather_uneven(call)
            return
        try:
            self.own(**call)
        except RuntimeError as error:
            if _NOT_A_TYPE in str(error):
                self.say(f"{self.name}: this gloo has no bfloat16; bits are sent, and sums are float32")
                _otherwise(self.own, call, in_float=self.name in _SUMS)
            elif _REFUSED in str(error) and self.name in _OTHERS:
                self.lacking = True
                self.say(f"{self.name}: this gloo has none; it is made of others")
                _OTHERS[self.name](call)
            else:
                raise


def _otherwise(collective: Callable[..., Any], call: dict[str, Any], *, in_float: bool) -> None:
    """Do a collective of bfloat16 with its bits as float16, or in float32 where it adds up."""
    if not in_float:
        collective(**{key: _bits(value) for key, value in call.items()})
        return
    wide = {key: value.float() if isinstance(value, Tensor) else value for key, value in call.items()}
    collective(**wide)
    for key in ("output", "tensor"):
        if key in call:
            call[key].copy_(wide[key])


def _bits(value: Any) -> Any:
    if isinstance(value, list):
        return [_bits(one) for one in value]
    return value.view(torch.float16) if isinstance(value, Tensor) else value


def _gather(call: dict[str, Any]) -> None:
    whole: Tensor = call["output_tensor"]
    parts = list(whole.view(-1).chunk(dist.get_world_size(call.get("group"))))
    dist.all_gather(parts, call["input_tensor"].reshape(-1), group=call.get("group"))


def _gather_uneven(call: dict[str, Any]) -> None:
    group = call.get("group")
    for rank, part in enumerate(call["tensor_list"]):
        if rank == dist.get_rank(group):
            part.copy_(call["tensor"].view_as(part))
        if part.numel():
            dist.broadcast(part, rank if group is None else dist.get_global_rank(group, rank), group=group)


def _scatter(call: dict[str, Any]) -> None:
    group, output = call.get("group"), call["output"]
    whole = call["input"].reshape(-1).clone()
    dist.all_reduce(whole, op=call.get("op") or dist.ReduceOp.SUM, group=group)
    mine = whole.chunk(dist.get_world_size(group))[dist.get_rank(group)]
    output.copy_(mine.view_as(output))


_SUMS = ("reduce_scatter_tensor", "all_reduce")
_OTHERS = {"all_gather_into_tensor": _gather, "reduce_scatter_tensor": _scatter}
