"""Turns FSDP1 into DeepSpeed's ZeRO, for another column beside the speed of both arms.

What `FullyShardedDataParallel(...)` builds becomes one module around the outermost one. With its first
forward pass that wants gradients it hands the module and its optimizer to `deepspeed.initialize`; from then
on its forward pass is the engine's, and so is the optimizer's `step`. `loss.backward()` stays as it is: the
engine's hooks on its output take the gradients. A script that does more with the wrapper, with gradients or
with a gradient scaler ends with an error, and the report says that this column is missing.

Relies on `deepspeed/runtime/engine.py` (`DeepSpeedEngine.forward`, `step`, `_support_torch_style_backward`;
0.18.3 and later) and `deepspeed/runtime/zero/stage3.py` (`clip_grad`, `sub_group_size`).
"""

from __future__ import annotations

import importlib
import os
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import ShardingStrategy
from torch.optim import Optimizer

from fsdp_migrate.verify.replicated import Say, take_place, without_wrappers

_STAGES = {
    ShardingStrategy.FULL_SHARD: 3,
    ShardingStrategy.HYBRID_SHARD: 3,
    ShardingStrategy.SHARD_GRAD_OP: 2,
    ShardingStrategy._HYBRID_SHARD_ZERO2: 2,
    ShardingStrategy.NO_SHARD: 1,
}
_WHOLE = int(1e15)
"""Elements of the largest group that the optimizer steps at once: all of them."""


def configuration(call: Mapping[str, Any]) -> dict[str, Any]:
    """DeepSpeed's configuration for the arguments of one FSDP1 call.

    Raises:
        ValueError: parameters in float16, whose gradients DeepSpeed scales itself.
    """
    strategy = call.get("sharding_strategy") or ShardingStrategy.FULL_SHARD
    precision = call.get("mixed_precision")
    computed, reduced = (getattr(precision, name, None) for name in ("param_dtype", "reduce_dtype"))
    if computed is torch.float16:
        raise ValueError("float16: DeepSpeed scales losses itself, and the script's scaler would do so again")
    zero: dict[str, Any] = {"stage": _STAGES[strategy], "sub_group_size": _WHOLE}
    if getattr(call.get("cpu_offload"), "offload_params", False):
        zero["offload_optimizer"] = {"device": "cpu"}
        if zero["stage"] == 3:
            zero["offload_param"] = {"device": "cpu"}
    found: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,  # for its own log alone
        "steps_per_print": _WHOLE,
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    if computed is torch.bfloat16:
        found["bf16"] = {"enabled": True}
    if reduced is not None:
        found["communication_data_type"] = {torch.float32: "fp32", torch.bfloat16: "bf16"}[reduced]
    return found


def unlike(call: Mapping[str, Any]) -> Iterator[str]:
    """What ZeRO does otherwise than these arguments of FSDP1 ask for."""
    strategy = call.get("sharding_strategy") or ShardingStrategy.FULL_SHARD
    yield f"ZeRO stage {_STAGES[strategy]} takes the place of {strategy.name}"
    if "HYBRID" in strategy.name:
        yield "all ranks shard together, also where FSDP1 shards within a group of them"
    yield "gradients are reduced in every backward pass, also within no_sync()"


class Partitioned(nn.Module):
    """A module that DeepSpeed takes over when it is first called to be trained.

    Args:
        optimizers: all that the script has made so far.
    """

    def __init__(self, module: nn.Module, config: dict[str, Any], optimizers: list[Optimizer]) -> None:
        super().__init__()
        self.module = module
        self._config, self._optimizers = config, optimizers
        self._engine: list[Any] = []  # in a list, so that it is no part of this module
        self._max_norm = 0.0

    def forward(self, *inputs: Any, **keywords: Any) -> Any:
        """The engine's; the module's own before it is trained."""
        if not self._engine and torch.is_grad_enabled():
            self._hand_over()
        if not self._engine:
            return self.module(*inputs, **keywords)
        return self._engine[0].forward(*inputs, **keywords)

    def _hand_over(self) -> None:
        mine = {id(parameter) for parameter in self.module.parameters()}
        held = [
            one
            for one in self._optimizers
            if any(id(parameter) in mine for group in one.param_groups for parameter in group["params"])
        ]
        if len(held) != 1:
            raise RuntimeError(f"DeepSpeed takes one optimizer for a model, and this one has {len(held)}")
        deepspeed: Any = importlib.import_module("deepspeed")
        (optimizer,) = held
        engine, *_ = deepspeed.initialize(model=self.module, optimizer=optimizer, config=self._config)
        if not getattr(engine, "_support_torch_style_backward", False):
            raise RuntimeError("this version of DeepSpeed knows no loss.backward()")
        self._engine.append(engine)
        _step_by(engine, optimizer)
        self._set_max_norm()

    def _set_max_norm(self) -> None:
        for engine in self._engine:
            engine.optimizer.clip_grad = self._max_norm

    def no_sync(self) -> AbstractContextManager[None]:
        """ZeRO reduces in every backward pass."""
        return nullcontext()

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Tensor:
        """Have the engine clip in this step and those that follow; the norm of the step before, 0-dim."""
        if norm_type != 2.0:
            raise ValueError("DeepSpeed clips by the 2-norm")
        self._max_norm = float(max_norm)
        self._set_max_norm()
        norm = self._engine[0].get_global_grad_norm() if self._engine else None
        return torch.as_tensor(0.0 if norm is None else float(norm))


def _step_by(engine: Any, optimizer: Optimizer) -> None:
    """Make `optimizer.step()` the engine's step, in which the engine calls the optimizer's own.

    torch's hooks of optimizer steps are called once around it, however many groups the engine steps.
    """
    kind = type(optimizer)
    own: Callable[..., Any] = getattr(kind.step, "__wrapped__", kind.step)

    def step(self: Optimizer, closure: Any = None) -> Any:
        if closure is not None:
            raise RuntimeError("DeepSpeed's step takes no closure")
        self.step = types.MethodType(own, self)  # type: ignore[method-assign]
        try:
            return engine.step()
        finally:
            self.step = types.MethodType(hooked, self)  # type: ignore[method-assign]

    hooked = Optimizer.profile_hook_step(step)
    optimizer.step = types.MethodType(hooked, optimizer)  # type: ignore[method-assign]


def apply(say: Say, device: str) -> None:
    """Patch FSDP1's class in this process, and follow the optimizers that are made.

    Args:
        device: "cuda" or "cpu".
    """
    if device == "cpu":
        os.environ["DS_ACCELERATOR"] = "cpu"
    optimizers: list[Optimizer] = []
    begin = Optimizer.__init__

    def __init__(self: Optimizer, *arguments: Any, **keywords: Any) -> None:
        begin(self, *arguments, **keywords)
        optimizers.append(self)

    Optimizer.__init__ = __init__  # type: ignore[method-assign]

    def build(module: nn.Module, call: Mapping[str, Any]) -> nn.Module:
        for text in unlike(call):
            say(text)
        return Partitioned(without_wrappers(module, Partitioned), configuration(call), optimizers)

    take_place(build)
