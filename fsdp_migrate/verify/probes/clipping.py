"""Records the norm that every clipping call works with: of torch's functions and of a project's own.

`torch.nn.utils.clip_grad_norm_` returns a DTensor under FSDP2 whose local value is this rank's part of the
norm. The part is recorded as it is, with the ranks that hold the other parts; the comparison puts them
together, so that no collective is added to the job.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import Tensor
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.utils import clip_grad

from fsdp_migrate.verify.probes.session import Session
from fsdp_migrate.verify.probes.shards import is_dtensor, local_part

_REDIRECTED = "_fsdp_migrate_clip_grad_norm_"
_OWN = str(Path(__file__).resolve().parents[2])


def attach(session: Session) -> None:
    """Wrap torch's clipping functions and FSDP1's method."""
    nesting = [0]
    found: list[dict[str, Any]] = []  # of the outermost call so far that knows a norm

    def recorded(
        clip: Callable[..., Any], norm_of: Callable[[tuple[Any, ...], dict[str, Any], Any], Any]
    ) -> Any:
        @functools.wraps(clip)
        def wrapper(*arguments: Any, **keywords: Any) -> Any:
            if nesting[0] == 0:
                found.clear()
            nesting[0] += 1
            try:
                result = clip(*arguments, **keywords)
            finally:
                nesting[0] -= 1
            with session.probing() as active:
                norm = norm_of(arguments, keywords, result)
                if active and _is_number(norm):
                    found[:] = [
                        {
                            "function": clip.__qualname__,
                            "max_norm": _number(_argument(arguments, keywords, 1, "max_norm", None)),
                            "norm_type": _norm_type(clip, arguments, keywords),
                            "norm": norm,
                        }
                    ]
                if active and nesting[0] == 0:
                    session.now.clips += found
            return result

        return wrapper

    returned = recorded(clip_grad.clip_grad_norm_, lambda _arguments, _keywords, result: result)
    torch.nn.utils.clip_grad_norm_ = returned
    clip_grad.clip_grad_norm_ = returned
    given = getattr(torch.nn.utils, "clip_grads_with_norm_", None)
    if given is not None:
        torch.nn.utils.clip_grads_with_norm_ = recorded(
            given, lambda arguments, keywords, _result: _argument(arguments, keywords, 2, "total_norm", None)
        )
    session.at_first_model.append(lambda: _watch_functions_of_the_project(recorded))
    method = FullyShardedDataParallel.clip_grad_norm_
    FullyShardedDataParallel.clip_grad_norm_ = recorded(method, lambda _arguments, _keywords, result: result)  # type: ignore[method-assign]


def _watch_functions_of_the_project(recorded: Callable[..., Any]) -> None:
    """Redirect the project's own `clip_grad_norm_`, such as that which `rewrite` writes, through `recorded`.

    Other modules have imported it by name already, so that the function itself is given other code.
    """
    seen: set[int] = set()
    for module in list(sys.modules.values()):
        function = _plain(getattr(module, "__dict__", {}).get("clip_grad_norm_"))
        if function is None or id(function) in seen or not _is_of_the_project(function):
            continue
        seen.add(id(function))
        as_it_was = FunctionType(
            function.__code__, function.__globals__, function.__name__, function.__defaults__
        )
        as_it_was.__kwdefaults__ = function.__kwdefaults__
        as_it_was.__qualname__ = function.__qualname__
        function.__globals__[_REDIRECTED] = recorded(as_it_was, lambda _arguments, _keywords, result: result)
        function.__code__ = _redirect()
        function.__defaults__ = function.__kwdefaults__ = None


def _plain(value: object) -> FunctionType | None:
    """The function below decorators such as `torch.no_grad()`, where its code can be exchanged."""
    while (inner := getattr(value, "__wrapped__", None)) is not None:
        value = inner
    return value if isinstance(value, FunctionType) and not value.__code__.co_freevars else None


def _is_of_the_project(function: FunctionType) -> bool:
    path = function.__code__.co_filename
    installed = "site-packages" in path or path.startswith((sys.base_prefix, _OWN))
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    return not installed and names[1:3] in (("max_norm",), ("max_norm", "norm_type"))


def _redirect() -> CodeType:
    """Code that calls what stands under `_REDIRECTED` in the globals of the function that gets it."""
    space: dict[str, Any] = {}
    exec(f"def clip_grad_norm_(*arguments, **keywords): return {_REDIRECTED}(*arguments, **keywords)", space)
    code: CodeType = space["clip_grad_norm_"].__code__
    return code


def _norm_type(clip: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any]) -> float:
    """`clip_grads_with_norm_` is given the norm itself in that place, and no type."""
    if clip.__name__ == "clip_grads_with_norm_":
        return 2.0
    return _number(_argument(arguments, keywords, 2, "norm_type", 2.0)) or 2.0


def _argument(
    arguments: tuple[Any, ...], keywords: dict[str, Any], position: int, name: str, default: Any
) -> Any:
    return arguments[position] if len(arguments) > position else keywords.get(name, default)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) or (isinstance(value, Tensor) and value.numel() == 1)


def _number(value: Any) -> float | None:
    if isinstance(value, Tensor):
        value = local_part(value).item()
    return None if value is None else float(value)


def norm_words(norm: Any) -> dict[str, object]:
    """A norm as the record keeps it: its local value, and whose parts make it whole (none: it is)."""
    if not is_dtensor(norm):
        return {"value": _number(norm), "ranks": []}
    ranks: set[int] = set()
    for dimension, placement in enumerate(norm.placements):
        if placement.is_partial():
            ranks |= set(torch.distributed.get_process_group_ranks(norm.device_mesh.get_group(dimension)))
    return {"value": _number(norm), "ranks": sorted(ranks)}
