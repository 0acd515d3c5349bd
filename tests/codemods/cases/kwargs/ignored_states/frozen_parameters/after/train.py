import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from fsdp2_sharding import ModuleWrapPolicy, shard_model
from model import Block, Model, batch, loss_of


def old_release(model):
    """The keyword's name up to torch 2.0."""
    frozen = [p for p in model.parameters() if not p.requires_grad]
    return shard_model(model, ignored_states=frozen, device_id=torch.device("cpu"))


def nothing_ignored(model):
    return fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))


def main(out):
    model = Model()
    for parameter in model.embed.parameters():
        parameter.requires_grad_(False)
    model = shard_model(
        model,
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        ignored_states=[p for p in model.parameters() if not p.requires_grad],
        device_id=torch.device("cpu"),
    )
    optimizer = torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad], lr=0.01, foreach=False
    )
    losses = []
    for step in range(2):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"model": model, "losses": losses}
