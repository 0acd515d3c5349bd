import torch
from torch.distributed.fsdp import (
    FSDPModule,
    FullStateDictConfig,
    StateDictType,
    fully_shard,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def save(model, stage, path):
    # TODO(fsdp-migrate FM516): rewrite this by hand for `fully_shard`
    config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    # TODO(fsdp-migrate FM401): save with
    #   `get_model_state_dict`/`get_optimizer_state_dict` and load with
    #   `set_model_state_dict`/`set_optimizer_state_dict` of
    #   `torch.distributed.checkpoint.state_dict`, then remove the context
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
        for name, unit in stage.named_modules():
            if not isinstance(unit, FSDPModule):
                continue
            state = unit.state_dict()
            if state:
                torch.save(state, f"{path}/{name}.pt")


def main(model, stage):
    fully_shard(model)
    save(model, stage, "out")
