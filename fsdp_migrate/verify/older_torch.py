"""What the probes need of torch that releases from 2.1 on lack or spell otherwise.

An original may be recorded where it has always run, with the torch that it has always run with. Each function
asks torch for what it has, and not for its version. Releases before 2.1 are refused: their `FlatParameter`
does not say where a parameter lies in it (`_shard_param_infos`).
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as modules
from torch.utils import _pytree as pytree

from fsdp_migrate.verify.releases import release


def tensors_and_others(tree: Any) -> list[Any]:
    """The leaves of nested containers."""
    leaves: list[Any] = pytree.tree_flatten(tree)[0]
    return leaves


def autocast_dtype(kind: str) -> torch.dtype | None:
    """The dtype of the autocast that is on for a type of device; `None` when it is off."""
    if hasattr(torch, "get_autocast_dtype"):  # 2.4
        return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
    if kind == "cpu":
        return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else None
    on = kind == "cuda" and torch.is_autocast_enabled()
    return torch.get_autocast_gpu_dtype() if on else None


def cpu_autocast_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype that an autocast for CPUs takes in place of one for cuda: before 2.4 bfloat16 alone."""
    return dtype if hasattr(torch, "get_autocast_dtype") else torch.bfloat16


def cuda_autocast_dtype() -> torch.dtype:
    """The dtype that an autocast for cuda takes where it is told none."""
    get = getattr(torch, "get_autocast_dtype", None)
    dtype: torch.dtype = torch.get_autocast_gpu_dtype() if get is None else get("cuda")
    return dtype


def register_forward_hook(hook: Callable[[nn.Module, Any, Any, Any], None]) -> None:
    """Call `hook(module, arguments, keywords, output)` after every module call, also one that fails."""
    try:
        modules.register_module_forward_hook(hook, with_kwargs=True, always_call=True)
        return
    except TypeError:  # before 2.3 the global hook is not given keywords
        pass
    keywords_of_calls: list[dict[str, Any]] = []
    call = nn.Module.__call__

    def __call__(self: nn.Module, *arguments: Any, **keywords: Any) -> Any:
        keywords_of_calls.append(keywords)
        try:
            return call(self, *arguments, **keywords)
        finally:
            keywords_of_calls.pop()

    def with_keywords(module: nn.Module, arguments: Any, output: Any) -> None:
        hook(module, arguments, keywords_of_calls[-1] if keywords_of_calls else {}, output)

    nn.Module.__call__ = __call__  # type: ignore[method-assign]
    modules.register_module_forward_hook(with_keywords, always_call=True)


def keep_optimizer_hooks() -> None:
    """Before 2.3 torch.compile takes their hooks from optimizers, once, when it is first used."""
    import torch._dynamo.eval_frame as eval_frame

    patcher: Any = getattr(eval_frame, "TorchPatcher", None)
    if patcher is None or release(torch.__version__) >= (2, 3):
        return
    patcher.patch()
    for kind in vars(torch.optim).values():
        if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer) and "step" in vars(kind):
            kind.step = torch.optim.Optimizer.profile_hook_step(kind.step)  # type: ignore[assignment,method-assign]
            kind.step.hooked = True  # type: ignore[attr-defined]


def device_mesh() -> ModuleType | None:
    """`torch.distributed.device_mesh`, which came with 2.2."""
    try:
        from torch.distributed import device_mesh as found
    except ImportError:
        return None
    return found


def has_whole_number_products() -> bool:
    """Whether int8 matrices can be multiplied on a CPU."""
    ones = torch.ones(16, 16, dtype=torch.int8)
    try:
        torch._int_mm(ones, ones)
    except (AttributeError, RuntimeError):
        return False
    return True
