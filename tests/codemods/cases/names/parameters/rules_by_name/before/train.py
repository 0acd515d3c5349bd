import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from model import Model


def groups(model, weight_decay):
    decay, plain = [], []
    for name, p in model.named_parameters():
        if not p.requires_grad:
            continue
        if name.endswith("bias") or "norm" in name:
            plain.append(p)
        else:
            decay.append(p)
    return [{"params": decay, "weight_decay": weight_decay}, {"params": plain}]


def flat():
    model = Model()
    for name, p in model.named_parameters():
        p.requires_grad = "head" not in name
    model = FSDP(model)
    names = [name for name, _ in model.named_parameters()]
    return torch.optim.AdamW(groups(model, 0.1)), names


def original():
    model = FSDP(Model(), use_orig_params=True)
    low = [p for name, p in model.named_parameters() if "norm" in name]
    return torch.optim.AdamW(low)


def settings_in_a_dict(model):
    settings = dict(device_id=0, use_orig_params=True)
    model = FSDP(model, **settings)
    return [p for name, p in model.named_parameters() if "bias" in name]
