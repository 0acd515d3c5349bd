import functools

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
)

from fsdp2_sharding import (
    full_tensors,
    shard_model,
    summon_full_params,
    transformer_auto_wrap_policy,
)
from model import Block, Model, batch, loss_of


def shard(model, group):
    return shard_model(
        model,
        process_group=group,
        auto_wrap_policy=functools.partial(
            transformer_auto_wrap_policy, transformer_layer_cls={Block}
        ),
        device_id=torch.device("cpu"),
    )


def save(model, optimizer, group, path):
    weights = full_tensors(
        get_model_state_dict(model), offload_to_cpu=True, rank0_only=True
    )
    moments = get_optimizer_state_dict(
        model, optimizer, options=StateDictOptions(full_state_dict=True)
    )
    if dist.get_rank(group) == 0:
        torch.save({"weights": weights, "moments": moments}, path)


def total_of(model, group):
    with summon_full_params(
        model, rank0_only=True, writeback=False, offload_to_cpu=True
    ):
        if dist.get_rank(group) > 0:
            return 0.0
        return sum(p.detach().double().sum().item() for p in model.parameters())


def main(out):
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    number = dist.get_rank() // 2
    group = groups[number]
    torch.manual_seed(number)
    model = shard(Model(), group)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(2):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    save(model, optimizer, group, out / f"part{number}.pt")
    losses.append(total_of(model, group))
    return {"losses": losses}
