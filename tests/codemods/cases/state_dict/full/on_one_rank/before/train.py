import torch
import torch.distributed as dist
from model import Block, Model, batch, loss_of
from torch.distributed.fsdp import FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


def save(model, path):
    config = FullStateDictConfig(offload_to_cpu=False, rank0_only=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
        state = model.state_dict()
        if dist.get_rank() == 0:
            torch.save(state, path)


def read(model):
    found = {}
    with FSDP.summon_full_params(model, writeback=False, rank0_only=True):
        if dist.get_rank() == 0:
            found = {n: p.detach().clone() for n, p in model.named_parameters()}
    return found


def save_on_rank0(model, path):
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), path)


def save_after_leaving(model, path):
    if dist.get_rank() != 0:
        return
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        torch.save(model.state_dict(), path)


def read_on_rank0(model):
    if dist.get_rank() == 0:
        with FSDP.summon_full_params(model):
            print(model.embed.weight)


def main(out):
    model = FSDP(
        Model(),
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )
    loss_of(model, batch(0)).backward()
    save(model, out / "model.pt")
    found = read(model)
    if dist.get_world_size() == 1:
        save_on_rank0(model, out / "rank0.pt")
        save_after_leaving(model, out / "left.pt")
        read_on_rank0(model)
    return {"model": model, "found": found}
