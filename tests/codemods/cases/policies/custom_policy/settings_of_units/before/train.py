import torch
from torch.distributed.fsdp import (
    CPUOffload,
    FullyShardedDataParallel as FSDP,
    MixedPrecision,
    ShardingStrategy,
)
from torch.distributed.fsdp.wrap import CustomPolicy

from model import Block, Model, batch, loss_of
from policies import Settings


def by_method(model):
    return FSDP(
        model,
        auto_wrap_policy=CustomPolicy(Settings(model).of_unit),
        mixed_precision=MixedPrecision(
            param_dtype=torch.bfloat16, reduce_dtype=torch.float32
        ),
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )


def by_lambda(model):
    policy = CustomPolicy(
        lambda module: isinstance(module, Block)
        and {
            "sharding_strategy": ShardingStrategy.FULL_SHARD,
            "cpu_offload": CPUOffload(offload_params=True),
        }
    )
    return FSDP(
        model,
        auto_wrap_policy=policy,
        sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )


def main(out, kind, steps):
    model = by_method(Model()) if kind == "method" else by_lambda(Model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"model": model, "losses": losses}
