import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard


def resume(module, state):
    model = fully_shard(module)
    optimizer = torch.optim.Adam([{"params": model.parameters(), "eps": 0}], lr=1e-3)
    # TODO(fsdp-migrate FM405): use `set_optimizer_state_dict(model, optimizer, state,
    #   options=...)` from `torch.distributed.checkpoint.state_dict`; it loads by
    #   itself, so the following `optimizer.load_state_dict` goes
    optimizer.load_state_dict(FSDP.optim_state_dict_to_load(model, optimizer, state))
    return model, optimizer
