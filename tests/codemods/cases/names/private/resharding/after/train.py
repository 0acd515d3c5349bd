import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from model import Block, Model, batch, loss_of


def all_units(model):
    for unit in [
        module for module in model.modules() if isinstance(module, FSDPModule)
    ]:
        unit.reshard()


def one(module):
    if isinstance(module, FSDPModule):
        module.reshard()


def with_old_handles(model):
    for unit in [
        module for module in model.modules() if isinstance(module, FSDPModule)
    ]:
        # TODO(fsdp-migrate FM507): FSDP2 has no handles: `module.reshard()` reshards,
        #   `parameter.to_local()` is a shard
        handles = unit._handles
        # TODO(fsdp-migrate FM310): every module given to `fully_shard` counts: test
        #   `isinstance(module, FSDPModule)`
        if unit._has_params and handles:
            unit.reshard()


def storage(model):
    from torch.distributed.fsdp._flat_param import _free_storage

    for module in model.modules():
        if isinstance(module, FSDPModule):
            # TODO(fsdp-migrate FM507): there is no flat parameter: each DTensor has its
            #   own name and whole shape, `.to_local()` is this rank's part
            _free_storage(module._handle.flat_param.data)


def main(out, freed=False):
    model = Model()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for module in reversed(list(model.modules())):  # children before parents
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(2):
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        with torch.no_grad():
            losses.append(loss_of(model, batch(step)).item())
        one(model)  # or the next forward pass would use the root's old weights
        optimizer.step()
        with torch.no_grad():
            losses.append(loss_of(model, batch(step)).item())
        all_units(model)
    if freed:
        with_old_handles(model)
        storage(model)
    return {"model": model, "losses": losses}
