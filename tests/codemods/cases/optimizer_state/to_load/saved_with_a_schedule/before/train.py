import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def build(module):
    model = FSDP(module, use_orig_params=True)
    return model, torch.optim.Adam(model.parameters(), lr=1e-3)


def resume(module, path):
    model, optimizer = build(module)
    state = torch.load(path)
    optimizer.load_state_dict(FSDP.optim_state_dict_to_load(model, optimizer, state))
    return torch.optim.lr_scheduler.ConstantLR(optimizer, last_epoch=3)


def resume_with_the_schedule(module, path):
    model, optimizer = build(module)
    schedule = torch.optim.lr_scheduler.ConstantLR(optimizer)
    state = torch.load(path)
    optimizer.load_state_dict(FSDP.optim_state_dict_to_load(model, optimizer, state))
    return schedule
