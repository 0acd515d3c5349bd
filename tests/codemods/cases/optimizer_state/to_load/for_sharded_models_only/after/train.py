from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from fsdp2_sharding import numbered_optim_state
from model import Block, Model, batch, loss_of


def prepare(args):
    model = Model()
    if args.fsdp:
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for module in reversed(list(model.modules())):  # children before parents
            if isinstance(module, Block):
                fully_shard(module, mesh=mesh)
        fully_shard(model, mesh=mesh)
    elif args.distributed:
        model = DistributedDataParallel(model)
    return model


def save(args, model, optimizer, path):
    whole, moments = None, None
    if args.fsdp:
        policy = StateDictOptions(full_state_dict=True, cpu_offload=True)
        whole = get_model_state_dict(model, options=policy)
        moments = get_optimizer_state_dict(
            model,
            optimizer,
            options=StateDictOptions(full_state_dict=True, cpu_offload=True),
        )
    if dist.get_rank() == 0:
        state = {
            "model": whole if args.fsdp else model.state_dict(),
            "optimizer": moments if args.fsdp else optimizer.state_dict(),
        }
        torch.save(state, path)


def load_model(args, model, path):
    state = torch.load(path, map_location="cpu")["model"]
    if args.fsdp:
        set_model_state_dict(
            model, dict(state), options=StateDictOptions(full_state_dict=True)
        )
    elif args.distributed:
        state = {name.removeprefix("module."): value for name, value in state.items()}
        model.module.load_state_dict(state)
    else:
        model.load_state_dict(state)


def load_optimizer(args, model, optimizer, path):
    state = torch.load(path, map_location="cpu")["optimizer"]
    if args.fsdp:
        state = numbered_optim_state(model, optimizer, state)
    optimizer.load_state_dict(state)


def train(model, optimizer, steps):
    losses = []
    for step in steps:
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main(out, fsdp, distributed, original):
    args = SimpleNamespace(fsdp=fsdp, distributed=distributed, original=original)
    model = prepare(args)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = train(model, optimizer, range(2))
    save(args, model, optimizer, out / "checkpoint.pt")
    dist.barrier()
    again = prepare(args)
    optimizer = torch.optim.AdamW(again.parameters(), lr=0.01)
    load_model(args, again, out / "checkpoint.pt")
    load_optimizer(args, again, optimizer, out / "checkpoint.pt")
    losses += train(again, optimizer, range(2, 4))
    return {"losses": losses}
