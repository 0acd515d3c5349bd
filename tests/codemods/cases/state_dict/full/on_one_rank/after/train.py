import torch
import torch.distributed as dist
from fsdp2_sharding import full_tensors, summon_full_params
from model import Block, Model, batch, loss_of
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def save(model, path):
    state = full_tensors(get_model_state_dict(model), rank0_only=True)
    if dist.get_rank() == 0:
        torch.save(state, path)


def read(model):
    found = {}
    with summon_full_params(model, writeback=False, rank0_only=True):
        if dist.get_rank() == 0:
            found = {n: p.detach().clone() for n, p in model.named_parameters()}
    return found


def save_on_rank0(model, path):
    if dist.get_rank() == 0:
        # TODO(fsdp-migrate FM312): call it on every rank, and let one rank use the
        #   result
        torch.save(
            get_model_state_dict(model, options=StateDictOptions(full_state_dict=True)),
            path,
        )


def save_after_leaving(model, path):
    if dist.get_rank() != 0:
        return
    # TODO(fsdp-migrate FM312): call it on every rank, and let one rank use the
    #   result
    torch.save(
        get_model_state_dict(model, options=StateDictOptions(full_state_dict=True)),
        path,
    )


def read_on_rank0(model):
    if dist.get_rank() == 0:
        # TODO(fsdp-migrate FM312): call it on every rank, and let one rank use the
        #   result
        with summon_full_params(model):
            print(model.embed.weight)


def main(out):
    model = Model()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in reversed(list(model.modules())):  # children before parents
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    loss_of(model, batch(0)).backward()
    save(model, out / "model.pt")
    found = read(model)
    if dist.get_world_size() == 1:
        save_on_rank0(model, out / "rank0.pt")
        save_after_leaving(model, out / "left.pt")
        read_on_rank0(model)
    return {"model": model, "found": found}
