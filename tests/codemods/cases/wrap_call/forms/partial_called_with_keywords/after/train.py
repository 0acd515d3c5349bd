import torch

import sharding
from fsdp2_sharding import CPUOffload, ShardingStrategy
from model import Model, batch, loss_of
from sharding import fsdp as shard


def build(offload):
    models = {"policy": Model(), "reference": Model()}
    for name, model in models.items():
        if name == "policy":
            models[name] = shard(
                model,
                sharding_strategy=ShardingStrategy.SHARD_GRAD_OP,
            )
        else:
            models[name] = sharding.fsdp(
                model.requires_grad_(False), cpu_offload=CPUOffload(offload)
            )
    return models


def main(out):
    models = build(offload=False)
    critic = sharding.by_block(Model())
    results = {"norms": []}
    for name, model in (("policy", models["policy"]), ("critic", critic)):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(2):
            with torch.no_grad():
                target = models["reference"](batch(step)).detach()
            loss = (
                loss_of(model, batch(step))
                + (model(batch(step)) - target).square().mean()
            )
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        results[name] = model
    loss_of(models["policy"], batch(9)).backward()
    results["norms"].append(
        round(
            torch.nn.utils.clip_grad_norm_(models["policy"].parameters(), 100.0)
            .full_tensor()
            .item(),
            4,
        )
    )
    return results
