import functools
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.nn.parallel import DistributedDataParallel

from model import Block, Model, batch, loss_of


def prepare(args):
    model = Model()
    if args.fsdp:
        model = FSDP(
            model,
            auto_wrap_policy=functools.partial(
                transformer_auto_wrap_policy, transformer_layer_cls={Block}
            ),
            device_id=torch.device("cpu"),
            use_orig_params=args.original,
        )
    elif args.distributed:
        model = DistributedDataParallel(model)
    return model


def save(args, model, optimizer, path):
    whole, moments = None, None
    if args.fsdp:
        policy = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, policy):
            whole = model.state_dict()
            moments = FSDP.optim_state_dict(model, optimizer)
    if dist.get_rank() == 0:
        state = {
            "model": whole if args.fsdp else model.state_dict(),
            "optimizer": moments if args.fsdp else optimizer.state_dict(),
        }
        torch.save(state, path)


def load_model(args, model, path):
    state = torch.load(path, map_location="cpu")["model"]
    if args.fsdp:
        model.load_state_dict(state)
    elif args.distributed:
        state = {name.removeprefix("module."): value for name, value in state.items()}
        model.module.load_state_dict(state)
    else:
        model.load_state_dict(state)


def load_optimizer(args, model, optimizer, path):
    state = torch.load(path, map_location="cpu")["optimizer"]
    if args.fsdp:
        state = FSDP.optim_state_dict_to_load(
            model=model, optim=optimizer, optim_state_dict=state
        )
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
