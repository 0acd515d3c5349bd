import torch
from torch.distributed.fsdp import fully_shard

from fsdp2_sharding import numbered_optim_state


def resume(model, path, keep):
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    saved = torch.load(path)
    # every rank calls it
    # what rank 0 has read
    # the wrapped model
    state = numbered_optim_state(model, None, saved, from_rank0=True)
    if keep:
        optimizer.state_before = state
    optimizer.load_state_dict(state)
    return optimizer
