import torch

from fsdp2_sharding import StateDictType, model_state_dict, state_dict_type


def save(model, path, kind):
    with state_dict_type(model, getattr(StateDictType, kind)):
        torch.save(model_state_dict(model), path)
