import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from model import Block, Model, batch, loss_of


def lists(model):
    """Weight decay by shape, decided before the wrap."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in reversed(list(model.modules())):  # children before parents
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decayed}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=0.01, weight_decay=0.5)
    return model, optimizer


def filled(model):
    decayed, others = [], []
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            others.append(parameter)
        else:
            decayed.append(parameter)
    optimizer = torch.optim.AdamW(
        [{"params": decayed}, {"params": others, "weight_decay": 0.0}],
        lr=0.01,
        weight_decay=0.5,
    )
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    print(scheduler.get_last_lr())
    return model, optimizer


def branch(model, is_sharded=True):
    if is_sharded:
        fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    else:
        model = model.double()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    return model, optimizer


def again(model):
    sharded = fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    optimizer.__init__(sharded.parameters(), lr=0.01)
    return sharded, optimizer


class Trainer:
    def __init__(self, model):
        self.model = model
        fully_shard(self.model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)


def main(out, form):
    if form == "attribute":
        trainer = Trainer(Model())
        model, optimizer = trainer.model, trainer.optimizer
    elif form == "lists":
        model, optimizer = lists(Model())
    elif form == "filled":
        model, optimizer = filled(Model())
    elif form == "branch":
        model, optimizer = branch(Model())
    else:
        model, optimizer = again(Model())
    losses = []
    for step in range(2):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"model": model, "losses": losses}
