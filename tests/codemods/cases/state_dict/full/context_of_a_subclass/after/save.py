import torch
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
)
from torch.distributed.fsdp import (
    FullyShardedDataParallel,
)


# TODO(fsdp-migrate FM106): make it a function that calls fully_shard, and what it added
#   methods of the model
class Sharded(FullyShardedDataParallel):
    def __init__(self, settings, model):
        super().__init__(model, use_orig_params=settings.use_orig_params)


def save(model: Sharded, optimizer, rank):
    full_on_rank0 = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights = get_model_state_dict(model, options=full_on_rank0)
    moments = get_optimizer_state_dict(model, optimizer, options=full_on_rank0)
    if rank == 0:
        torch.save({"weights": weights, "moments": moments}, "checkpoint.pt")
