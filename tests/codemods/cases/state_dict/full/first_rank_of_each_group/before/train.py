import functools

import torch
import torch.distributed as dist
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    StateDictType,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

from model import Block, Model, batch, loss_of


def shard(model, group):
    return FSDP(
        model,
        process_group=group,
        auto_wrap_policy=functools.partial(
            transformer_auto_wrap_policy, transformer_layer_cls={Block}
        ),
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )


def save(model, optimizer, group, path):
    with FSDP.state_dict_type(
        model,
        StateDictType.FULL_STATE_DICT,
        FullStateDictConfig(offload_to_cpu=True, rank0_only=True),
        FullOptimStateDictConfig(offload_to_cpu=False, rank0_only=False),
    ):
        weights = model.state_dict()
        moments = FSDP.optim_state_dict(model, optimizer)
    if dist.get_rank(group) == 0:
        torch.save({"weights": weights, "moments": moments}, path)


def total_of(model, group):
    with FSDP.summon_full_params(
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
