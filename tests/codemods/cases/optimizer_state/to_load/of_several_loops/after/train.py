import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import fully_shard

from fsdp2_sharding import load_full_optimizer


def resume(model, optimizers, reader, states):
    fully_shard(model)
    if states is None:
        weights = {"model": get_model_state_dict(model)}
        dcp.load(weights, storage_reader=reader)
        set_model_state_dict(model, weights["model"])
        for number, optim in enumerate(optimizers):
            key = f"optimizer_{number}"
            saved = {key: get_optimizer_state_dict(model, optim)}
            dcp.load(saved, storage_reader=reader)
            set_optimizer_state_dict(model, optim, saved[key])
    else:
        for optimizer, state in zip(optimizers, states):
            load_full_optimizer(model, optimizer, state)
