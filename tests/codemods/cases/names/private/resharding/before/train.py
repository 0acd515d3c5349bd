import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp._runtime_utils import _reshard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from model import Block, Model, batch, loss_of


def all_units(model):
    for unit in FSDP.fsdp_modules(model):
        _reshard(unit, unit._handle, True)


def one(module):
    if isinstance(module, FSDP) and module._handle is not None:
        module._handle.reshard(True)


def with_old_handles(model):
    for unit in FSDP.fsdp_modules(model):
        handles = unit._handles
        if unit._has_params and handles:
            _reshard(unit, handles, [True for _ in handles])


def storage(model):
    from torch.distributed.fsdp._flat_param import _free_storage

    for module in model.modules():
        if isinstance(module, FSDP):
            _free_storage(module._handle.flat_param.data)


def main(out, freed=False):
    model = FSDP(
        Model(),
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )
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
