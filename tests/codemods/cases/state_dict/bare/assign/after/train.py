import torch
from torch.distributed.fsdp import fully_shard


def load(model, path):
    fully_shard(model)
    # TODO(fsdp-migrate FM403): use `set_model_state_dict(model, state,
    #   options=StateDictOptions(full_state_dict=True))` for whole tensors or
    #   `set_model_state_dict(model, state)` for shards, from
    #   `torch.distributed.checkpoint.state_dict`
    model.load_state_dict(torch.load(path), assign=True)
    return model
