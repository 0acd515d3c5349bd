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
import math
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
_COMMUNICATED = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
_WHOLE = int(1e15)
"""Elements of the largest group that the optimizer steps at once: all of them."""


def configuration(call: Mapping[str, Any]) -> dict[str, Any]:
    """DeepSpeed's configuration for the arguments of one FSDP1 call; how losses are scaled comes later."""
    strategy = call.get("sharding_strategy") or ShardingStrategy.FULL_SHARD
    precision = call.get("mixed_precision")
    computed, reduced = (getattr(precision, name, None) for name in ("param_dtype", "reduce_dtype"))
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
    if computed is torch.float16:
        found["fp16"] = {"enabled": True, "loss_scale": 1.0}
    if reduced is not None:
        found["communication_data_type"] = _COMMUNICATED[reduced]
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
        scalers: its gradient scalers.
    """

    def __init__(
        self, module: nn.Module, config: dict[str, Any], optimizers: list[Optimizer], scalers: list[Any]
    ) -> None:
        super().__init__()
        self.module = module
        self._config, self._optimizers, self._scalers = config, optimizers, scalers
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
        scalers = [one for one in self._scalers if one.is_enabled()] if "fp16" in self._config else []
        for scaler in scalers[-1:]:
            self._config["fp16"] |= loss_scaling(scaler)
        engine, *_ = deepspeed.initialize(model=self.module, optimizer=optimizer, config=self._config)
        if not getattr(engine, "_support_torch_style_backward", False):
            raise RuntimeError("this version of DeepSpeed knows no loss.backward()")
        self._engine.append(engine)
        _step_by(engine, optimizer)
        for scaler in scalers:
            _scale_by(engine, scaler)
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
    `optimizer.zero_grad()` is the engine's too: the gradients that the optimizer holds then are buffers that
    offloading writes into.
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
    optimizer.zero_grad = lambda set_to_none=True: engine.optimizer.zero_grad(set_to_none)  # type: ignore[method-assign]


def loss_scaling(scaler: Any) -> dict[str, Any]:
    """DeepSpeed's words for how a gradient scaler of torch scales losses."""
    return {
        "loss_scale": 0,  # its own, which changes
        "initial_scale_power": max(0, round(math.log2(scaler.get_scale()))),
        "loss_scale_window": scaler.get_growth_interval(),
        "hysteresis": 1,
    }


def _scale_by(engine: Any, scaler: Any) -> None:
    """Make a gradient scaler's methods the engine's, which scales, unscales and skips steps itself."""
    scaler.scale = lambda loss: engine.scale(loss)
    scaler.unscale_ = lambda _optimizer: None
    scaler.step = lambda optimizer, *arguments, **keywords: optimizer.step(*arguments, **keywords)
    scaler.update = lambda _new_scale=None: None
    scaler.get_scale = lambda: float(engine.optimizer.loss_scale)


def apply(say: Say, device: str) -> None:
    """Patch FSDP1's class in this process, and follow the optimizers and gradient scalers that are made.

    Args:
        device: "cuda" or "cpu".
    """
    if device == "cpu":
        os.environ["DS_ACCELERATOR"] = "cpu"
    optimizers: list[Optimizer] = _followed(Optimizer)
    scalers: list[Any] = _followed(torch.amp.GradScaler)

    def build(module: nn.Module, call: Mapping[str, Any]) -> nn.Module:
        for text in unlike(call):
            say(text)
        config = configuration(call)
        if device == "cpu" and "fp16" in config:
            say("DeepSpeed takes float16 on CPUs that compute in it alone; torch does on all")
            accelerator: Any = importlib.import_module("deepspeed.accelerator").get_accelerator()
            accelerator.is_fp16_supported = lambda: True
        return Partitioned(without_wrappers(module, Partitioned), config, optimizers, scalers)

    take_place(build)


def _followed(kind: Any) -> list[Any]:
    """What is made of a class from now on."""
    made: list[Any] = []
    begin = kind.__init__

    def __init__(self: Any, *arguments: Any, **keywords: Any) -> None:
        begin(self, *arguments, **keywords)
        made.append(self)

    kind.__init__ = __init__
    return made
