import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullOptimStateDictConfig, StateDictType
from torch.distributed.fsdp import FullStateDictConfig
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.optim.lr_scheduler import ExponentialLR


def build():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
    model = FSDP(module, device_id=torch.device("cpu"), use_orig_params=True)
    FSDP.set_state_dict_type(
        model,
        StateDictType.FULL_STATE_DICT,
        FullStateDictConfig(),
        FullOptimStateDictConfig(offload_to_cpu=False),
    )
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
    model.load_state_dict(weights)
    optimizer.load_state_dict(FSDP.optim_state_dict_to_load(model, optimizer, moments))
    return model, trained(model, optimizer, ExponentialLR(optimizer, 0.5, 2), 2)


def resumed_with_the_schedule(weights, moments):
    model, optimizer = build()
    schedule = ExponentialLR(optimizer, 0.5)
    model.load_state_dict(weights)
    optimizer.load_state_dict(FSDP.optim_state_dict_to_load(model, optimizer, moments))
    return model, trained(model, optimizer, schedule, 2)


def main(out):
    model, optimizer = build()
    losses = trained(model, optimizer, ExponentialLR(optimizer, 0.5), 2)
    for resume in (resumed, resumed_with_the_schedule):
        weights = model.state_dict()
        moments = FSDP.optim_state_dict(model, optimizer)
        last, more = resume(weights, moments)
        losses += more
    return {"losses": losses, "model": last}
