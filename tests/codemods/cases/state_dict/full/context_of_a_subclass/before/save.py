import torch
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    FullyShardedDataParallel,
    StateDictType,
)


class Sharded(FullyShardedDataParallel):
    def __init__(self, settings, model):
        super().__init__(model, use_orig_params=settings.use_orig_params)


def save(model: Sharded, optimizer, rank):
    with Sharded.state_dict_type(
        model,
        StateDictType.FULL_STATE_DICT,
        FullStateDictConfig(offload_to_cpu=True, rank0_only=True),
        FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True),
    ):
        weights = model.state_dict()
        moments = FullyShardedDataParallel.optim_state_dict(model, optimizer)
    if rank == 0:
        torch.save({"weights": weights, "moments": moments}, "checkpoint.pt")
