import torch
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)
from torch.distributed.fsdp import fully_shard


def save(model, path, rank):
    fully_shard(model)
    full_on_rank0 = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_model_state_dict(model, options=full_on_rank0)
    if rank == 0:
        torch.save(state, path)
