import torch
import torch.distributed as dist
from fsdp2_sharding import summon_full_params
from model import Block, Model, batch, loss_of
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
)
from torch.distributed.fsdp import fully_shard


def save(model, path):
    with summon_full_params(model, writeback=False):
        if dist.get_rank() == 0:
            torch.save(model.state_dict(), path)
        dist.barrier()


def save_on_cpu(model, path):
    with summon_full_params(
        model, writeback=False, rank0_only=True, offload_to_cpu=True
    ):
        if dist.get_rank() == 0:
            torch.save(model.state_dict(), path)


def load(model, state):
    set_model_state_dict(model, state, options=StateDictOptions(full_state_dict=True))


def load_and_show(model, state):
    with summon_full_params(model):
        # TODO(fsdp-migrate FM403): use `set_model_state_dict(model, state,
        #   options=StateDictOptions(full_state_dict=True))` for whole tensors or
        #   `set_model_state_dict(model, state)` for shards, from
        #   `torch.distributed.checkpoint.state_dict`
        model.load_state_dict(state)
        print(model.embed.weight)


def export(model, path, prompt):
    with summon_full_params(model):
        model.generate(prompt)
        if dist.get_rank() == 0:
            # TODO(fsdp-migrate FM402): give it `state_dict=get_model_state_dict(model,
            #   options=StateDictOptions(full_state_dict=True, cpu_offload=True))`,
            #   called on every rank, or save and load that dict by yourself
            model.save_pretrained(path)


def save_units(model, path):
    with summon_full_params(model, recurse=False):
        if dist.get_rank() == 0:
            # TODO(fsdp-migrate FM312): call it on every rank, and let one rank use the
            #   result
            torch.save(
                get_model_state_dict(
                    model, options=StateDictOptions(full_state_dict=True)
                ),
                path,
            )


def main(out):
    model = Model()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in reversed(list(model.modules())):  # children before parents
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    loss_of(model, batch(0)).backward()
    save(model, out / "model.pt")
    save_on_cpu(model, out / "on_cpu.pt")
    state = torch.load(out / "model.pt") if dist.get_rank() == 0 else None
    found = [state]
    dist.broadcast_object_list(found)
    load(model, {name: 2 * value for name, value in found[0].items()})
    if hasattr(model, "save_pretrained"):
        export(model, out, batch(0))
        save_units(model, out / "units.pt")
        load_and_show(model, found[0])
    return {"model": model}
