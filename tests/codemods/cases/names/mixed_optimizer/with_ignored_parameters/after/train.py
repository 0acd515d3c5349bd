import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from fsdp2_sharding import ModuleWrapPolicy, shard_model
from model import Block, Model, batch, loss_of


def scaled():
    return torch.amp.GradScaler(enabled=False)


def asked_for(model):
    # TODO(fsdp-migrate FM528): give the ignored parameters a group of their own
    return torch.optim.AdamW(model.parameters(), lr=0.01, foreach=True)


def main(out):
    model = Model()
    model = shard_model(
        model,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        ignored_states=list(model.head.parameters()),
        device_id=torch.device("cpu"),
    )
    other = Model()
    fully_shard(other, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    of_other = torch.optim.SGD(other.parameters(), lr=0.01)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, foreach=False)
    losses = []
    for step in range(2):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    of_other.zero_grad()
    if len(losses) > 2:
        asked_for(model)
    return {"model": model, "losses": losses}
