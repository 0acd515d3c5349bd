import torch
import torch.distributed as dist
from model import Block, Model, batch, loss_of
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


def save(model, path):
    with FSDP.summon_full_params(model, writeback=False):
        if dist.get_rank() == 0:
            torch.save(model.state_dict(), path)
        dist.barrier()


def save_on_cpu(model, path):
    with FSDP.summon_full_params(
        model, writeback=False, rank0_only=True, offload_to_cpu=True
    ):
        if dist.get_rank() == 0:
            torch.save(model.module.state_dict(), path)


def load(model, state):
    with FSDP.summon_full_params(model):
        model.load_state_dict(state)


def load_and_show(model, state):
    with FSDP.summon_full_params(model):
        model.load_state_dict(state)
        print(model.embed.weight)


def export(model, path, prompt):
    with FSDP.summon_full_params(model):
        model.generate(prompt)
        if dist.get_rank() == 0:
            model.save_pretrained(path)


def save_units(model, path):
    with FSDP.summon_full_params(model, recurse=False):
        if dist.get_rank() == 0:
            torch.save(model.state_dict(), path)


def main(out):
    model = FSDP(
        Model(),
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )
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
