"""FSDP1's arguments in DeepSpeed's words, and an optimizer whose step is an engine's.

That the losses are the same is checked with the library itself: `benchmarks/under_deepspeed.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import CPUOffload, MixedPrecision, ShardingStrategy
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from fsdp_migrate.verify.partitioned import (
    Partitioned,
    _scale_by,
    _step_by,
    configuration,
    loss_scaling,
    unlike,
)


@pytest.mark.parametrize(
    ("strategy", "stage"),
    [
        (None, 3),
        (ShardingStrategy.FULL_SHARD, 3),
        (ShardingStrategy.HYBRID_SHARD, 3),
        (ShardingStrategy.SHARD_GRAD_OP, 2),
        (ShardingStrategy._HYBRID_SHARD_ZERO2, 2),
        (ShardingStrategy.NO_SHARD, 1),
    ],
)
def test_strategy_is_a_stage(strategy: ShardingStrategy | None, stage: int) -> None:
    call = {} if strategy is None else {"sharding_strategy": strategy}
    found = configuration(call)
    assert found["zero_optimization"]["stage"] == stage
    assert "bf16" not in found and "communication_data_type" not in found
    said = list(unlike(call))
    assert f"ZeRO stage {stage} takes the place of" in said[0]
    assert ("all ranks shard together" in " ".join(said)) == ("HYBRID" in str(strategy))


def test_every_strategy_of_fsdp1_has_a_stage() -> None:
    for one in ShardingStrategy:
        assert configuration({"sharding_strategy": one})["zero_optimization"]["stage"] in (1, 2, 3)


def test_precision_and_offload_are_taken_over() -> None:
    precision = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    found = configuration({"mixed_precision": precision, "cpu_offload": CPUOffload(offload_params=True)})
    assert found["bf16"] == {"enabled": True} and found["communication_data_type"] == "fp32"
    assert found["zero_optimization"]["offload_param"] == {"device": "cpu"}
    assert found["zero_optimization"]["offload_optimizer"] == {"device": "cpu"}
    alone = configuration({"mixed_precision": MixedPrecision(reduce_dtype=torch.bfloat16)})
    assert "bf16" not in alone and alone["communication_data_type"] == "bf16"
    half = configuration({"mixed_precision": MixedPrecision(torch.float16, torch.float16)})
    assert half["fp16"] == {"enabled": True, "loss_scale": 1.0} and "bf16" not in half
    assert half["communication_data_type"] == "fp16"


def test_scaler_of_the_script_is_the_engines() -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=7)
    found = loss_scaling(scaler)
    assert found == {"loss_scale": 0, "initial_scale_power": 10, "loss_scale_window": 7, "hysteresis": 1}
    engine = ScalingEngine()
    _scale_by(engine, scaler)
    steps: list[int] = []
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    optimizer.step = lambda: steps.append(1)  # type: ignore[assignment,method-assign,func-returns-value]
    assert float(scaler.scale(torch.tensor(2.0))) == 512.0
    scaler.unscale_(optimizer)  # it has no gradients
    scaler.step(optimizer)
    scaler.update()
    assert steps == [1] and scaler.get_scale() == 256.0


class ScalingEngine:
    """Scales losses as DeepSpeed's engine does."""

    class optimizer:
        loss_scale = 256

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        return loss * 256


@dataclass
class Engine:
    """Steps the optimizer once for each of its groups, as ZeRO does."""

    inner: torch.optim.Optimizer
    steps: int = 0
    zeroed: list[bool] = field(default_factory=list)
    seen: list[Any] = field(default_factory=list)

    @property
    def optimizer(self) -> Engine:
        return self

    def zero_grad(self, set_to_none: bool) -> None:
        self.zeroed.append(set_to_none)

    def step(self) -> None:
        self.steps += 1
        for _ in self.inner.param_groups:
            self.inner.step()


def test_step_of_the_optimizer_is_one_of_the_engine_whatever_its_groups() -> None:
    weights = [nn.Parameter(torch.ones(2)) for _ in range(2)]
    optimizer = torch.optim.SGD([{"params": [each]} for each in weights], lr=0.5)
    schedule = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)
    engine = Engine(optimizer)
    _step_by(engine, optimizer)
    hooked: list[str] = []
    hooks = [
        register_optimizer_step_pre_hook(lambda *_: hooked.append("before")),
        register_optimizer_step_post_hook(lambda *_: hooked.append("after")),
    ]
    try:
        for _ in range(2):
            for each in weights:
                each.grad = torch.ones(2)
            optimizer.step()
            schedule.step()
    finally:
        for hook in hooks:
            hook.remove()
    optimizer.zero_grad()
    assert engine.zeroed == [True]
    assert engine.steps == 2 and hooked == ["before", "after"] * 2
    assert all(torch.equal(each, torch.full((2,), 1 - 2 * 2 * 0.5)) for each in weights)
    with pytest.raises(RuntimeError, match="takes no closure"):
        optimizer.step(lambda: 0.0)


def test_model_is_its_own_until_it_is_trained_and_has_one_optimizer() -> None:
    inner = nn.Linear(2, 2)
    made: list[torch.optim.Optimizer] = []
    model = Partitioned(inner, configuration({}), made, [])
    x = torch.ones(1, 2)
    with torch.no_grad():
        assert torch.equal(model(x), inner(x))
    assert [name for name, _ in model.named_parameters()] == ["module.weight", "module.bias"]
    with pytest.raises(RuntimeError, match="this one has 0"):
        model(x)
    made += [torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.SGD([inner.bias], lr=0.1)]
    with pytest.raises(RuntimeError, match="this one has 2"):
        model(x)
