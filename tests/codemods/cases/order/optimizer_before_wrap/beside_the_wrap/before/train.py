import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.optim import AdamW

from net import Block, Trainer


def one_dict(model):
    policy = ModuleWrapPolicy({Block})
    return {
        "optimizer": torch.optim.AdamW(model.parameters()),
        "steps": 3,  # of each epoch
        "model": FSDP(model, auto_wrap_policy=policy, use_orig_params=True),
    }


def dict_of_one_line(model):
    return {"optimizer": AdamW(model.parameters()), "model": FSDP(model)}


def keywords(model):
    return Trainer(
        optimizer=AdamW(model.parameters(), lr=0.1),
        steps=3,
        model=FSDP(model, use_orig_params=True),
    )


def used_in_between(model):
    return Trainer(
        optimizer=AdamW(model.parameters()),
        names=list(model.state_dict()),
        model=FSDP(model),
    )


def positions(model):
    return Trainer(AdamW(model.parameters()), FSDP(model))


def names(model):
    optimizer, model = AdamW(model.parameters()), FSDP(model)
    return optimizer, model


def behind(model):
    return Trainer(model=FSDP(model), optimizer=AdamW(model.parameters()))


def of_another(model, other):
    return Trainer(optimizer=AdamW(other.parameters()), model=FSDP(model))


def either(model, sharded):
    return AdamW(model.parameters()) if sharded else FSDP(model)
