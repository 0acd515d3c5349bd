import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

EPS = 0.0


def build(module):
    model = FSDP(module, use_orig_params=True)
    return model, torch.optim.Adam(model.parameters(), lr=1e-3, eps=EPS)


def resume(module, path):
    model, optimizer = build(module)
    state = torch.load(path)
    optimizer.load_state_dict(FSDP.optim_state_dict_to_load(model, optimizer, state))
    return model, optimizer


def resume_with_eps(module, path):
    model = FSDP(module, use_orig_params=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, eps=1e-8)
    state = torch.load(path)
    optimizer.load_state_dict(FSDP.optim_state_dict_to_load(model, optimizer, state))
    return model, optimizer
