import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def resume(model, path, keep):
    model = FSDP(model)
    optimizer = torch.optim.AdamW(model.parameters())
    saved = torch.load(path)
    state = FSDP.scatter_full_optim_state_dict(  # every rank calls it
        saved,  # what rank 0 has read
        # the wrapped model
        model,
    )
    if keep:
        optimizer.state_before = state
    optimizer.load_state_dict(state)
    return optimizer
