"""Turns FSDP1 into DistributedDataParallel, for a third column beside the speed of both arms.

What `FullyShardedDataParallel(...)` builds becomes one `DistributedDataParallel` around the outermost module,
whatever was wrapped below it; what FSDP1 computed in a lower precision runs under autocast in that dtype, and
gradients are reduced as DDP reduces them. A script that does more with the wrapper than DDP can (sharded
state dicts, `summon_full_params`) ends with an error, and the report says that this column is missing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel

Say = Callable[[str], None]


class Replicated(DistributedDataParallel):
    """DDP with the one method of FSDP1's wrapper that training loops call."""

    compute_dtype: torch.dtype | None = None

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """As DDP's, under autocast where FSDP1 computed in a lower precision."""
        dtype = self.compute_dtype
        device = next(self.module.parameters()).device.type
        with nullcontext() if dtype is None else torch.autocast(device, dtype):
            return super().forward(*inputs, **kwargs)  # type: ignore[no-untyped-call]

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Tensor:
        """Clip the gradients, whole on every rank; the total norm, 0-dim."""
        return nn.utils.clip_grad_norm_(self.parameters(), max_norm, norm_type)


def apply(say: Say) -> None:
    """Patch the class in this process."""

    def build(module: nn.Module, call: Mapping[str, Any]) -> nn.Module:
        group = call.get("process_group")
        made = Replicated(
            without_wrappers(module, Replicated), process_group=None if isinstance(group, tuple) else group
        )
        made.compute_dtype = getattr(call.get("mixed_precision"), "param_dtype", None)
        for text in _unlike(call):
            say(text)
        return made

    take_place(build)


def take_place(build: Callable[[nn.Module, Mapping[str, Any]], nn.Module]) -> None:
    """Have `FullyShardedDataParallel(...)` give what `build` makes of the module and the call's arguments."""
    signature = inspect.signature(FullyShardedDataParallel.__init__)

    def replace(cls: type[Any], *arguments: Any, **keywords: Any) -> nn.Module:
        call = signature.bind(None, *arguments, **keywords).arguments
        module, device = call["module"], call.get("device_id")
        if device is not None:
            module = module.to(device if not isinstance(device, int) else torch.device("cuda", device))
        return build(module, call)

    # `FSDP(...)` calls no `__init__` on what is no FSDP.
    FullyShardedDataParallel.__new__ = staticmethod(replace)  # type: ignore[method-assign,assignment]


def _unlike(call: Mapping[str, Any]) -> Iterator[str]:
    """What DDP does otherwise than these arguments of FSDP1 ask for."""
    precision = call.get("mixed_precision")
    dtype = getattr(precision, "param_dtype", None)
    if dtype is not None:
        name = str(dtype).removeprefix("torch.")
        yield f"autocast in {name} takes the place of parameters in {name}"
    if getattr(precision, "reduce_dtype", None) is not None:
        yield "gradients are reduced in the dtype of the parameters"
    if getattr(call.get("cpu_offload"), "offload_params", False):
        yield "parameters are not offloaded to the CPU"
    if isinstance(call.get("process_group"), tuple) or call.get("device_mesh") is not None:
        yield "all ranks are replicas, also where FSDP1 shards within a group of them"


def without_wrappers(module: nn.Module, kind: type[nn.Module]) -> nn.Module:
    """The module without what was made of wrapped parts of it, which are of this kind and hold a `module`."""
    if isinstance(module, kind):
        module = module.get_submodule("module")
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, kind):
                setattr(parent, name, child.module)
    return module
