import torch
from torch.optim import AdamW

from net import Block, Trainer

from fsdp2_sharding import ModuleWrapPolicy, shard_model


def one_dict(model):
    policy = ModuleWrapPolicy({Block})
    # TODO(fsdp-migrate FM504): build the optimizer after the model is sharded, from the
    #   sharded model's parameters
    return {
        "optimizer": torch.optim.AdamW(model.parameters()),
        "steps": 3,  # of each epoch
        "model": shard_model(model, auto_wrap_policy=policy),
    }


def dict_of_one_line(model):
    return {"model": shard_model(model), "optimizer": AdamW(model.parameters())}


def keywords(model):
    return Trainer(
        model=shard_model(model),
        steps=3,
        optimizer=AdamW(model.parameters(), lr=0.1),
    )


def used_in_between(model):
    # TODO(fsdp-migrate FM504): build the optimizer after the model is sharded, from the
    #   sharded model's parameters
    return Trainer(
        optimizer=AdamW(model.parameters()),
        names=list(model.state_dict()),
        model=shard_model(model),
    )


def positions(model):
    # TODO(fsdp-migrate FM504): build the optimizer after the model is sharded, from the
    #   sharded model's parameters
    return Trainer(AdamW(model.parameters()), shard_model(model))


def names(model):
    # TODO(fsdp-migrate FM504): build the optimizer after the model is sharded, from the
    #   sharded model's parameters
    optimizer, model = AdamW(model.parameters()), shard_model(model)
    return optimizer, model


def behind(model):
    return Trainer(model=shard_model(model), optimizer=AdamW(model.parameters()))


def of_another(model, other):
    return Trainer(optimizer=AdamW(other.parameters()), model=shard_model(model))


def either(model, sharded):
    return AdamW(model.parameters()) if sharded else shard_model(model)
