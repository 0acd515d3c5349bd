import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from model import Block, Model, batch, loss_of


def wrapped(model):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in reversed(list(model.modules())):  # children before parents
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def grouped(model):
    decay, plain, known = set(), set(), {}
    for prefix, part in model.named_modules():
        for name, parameter in part.named_parameters(recurse=False):
            path = f"{prefix}.{name}" if prefix else name
            known[path] = parameter
            if name == "weight" and isinstance(part, nn.Linear):
                decay.add(path)
            else:
                plain.add(path)
    param_groups = []
    for names, weight_decay in ((decay, 0.5), (plain, 0.0)):
        param_groups.append(
            {
                "params": [known[path] for path in sorted(names)],
                "weight_decay": weight_decay,
            }
        )
    return param_groups


def in_lists():
    torch.manual_seed(0)
    model = Model()
    decay, plain = [], []
    param_groups = []
    model = wrapped(model)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            decay.append(parameter)
        else:
            plain.append(parameter)
    param_groups.append({"params": decay, "weight_decay": 0.5})
    param_groups.append({"params": plain, "weight_decay": 0.0})
    optimizer = torch.optim.AdamW(param_groups, lr=0.01)
    return model, optimizer


def by_name():
    torch.manual_seed(0)
    model = Model()
    model = wrapped(model)
    optimizer = torch.optim.AdamW(grouped(model), lr=0.01)
    return model, optimizer


def main(out, how):
    model, optimizer = in_lists() if how == "lists" else by_name()
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"model": model, "losses": losses}
