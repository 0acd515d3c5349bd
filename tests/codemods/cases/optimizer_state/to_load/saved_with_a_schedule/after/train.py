import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.optim.lr_scheduler import ExponentialLR

from fsdp2_sharding import load_full_optimizer


def build():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
    model = fully_shard(module, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    return model, torch.optim.AdamW(model.parameters(), lr=0.01, eps=1e-3)


def trained(model, optimizer, schedule, steps):
    losses = []
    for step in range(steps):
        generator = torch.Generator().manual_seed(10 * step + dist.get_rank())
        loss = model(torch.randn(4, 8, generator=generator)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        losses += [loss.item(), optimizer.param_groups[0]["lr"]]
    return losses


def resumed(weights, moments):
    model, optimizer = build()
    set_model_state_dict(model, weights, options=StateDictOptions(full_state_dict=True))
    load_full_optimizer(model, optimizer, moments)
    return model, trained(model, optimizer, ExponentialLR(optimizer, 0.5, 2), 2)


def resumed_with_the_schedule(weights, moments):
    model, optimizer = build()
    schedule = ExponentialLR(optimizer, 0.5)
    set_model_state_dict(model, weights, options=StateDictOptions(full_state_dict=True))
    set_optimizer_state_dict(
        model, optimizer, moments, options=StateDictOptions(full_state_dict=True)
    )
    return model, trained(model, optimizer, schedule, 2)


def main(out):
    model, optimizer = build()
    losses = trained(model, optimizer, ExponentialLR(optimizer, 0.5), 2)
    for resume in (resumed, resumed_with_the_schedule):
        weights = get_model_state_dict(
            model, options=StateDictOptions(full_state_dict=True)
        )
        moments = get_optimizer_state_dict(
            model, optimizer, options=StateDictOptions(full_state_dict=True)
        )
        last, more = resume(weights, moments)
        losses += more
    return {"losses": losses, "model": last}
