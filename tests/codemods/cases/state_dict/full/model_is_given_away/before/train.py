import torch
from torch.distributed.fsdp import (
    FullStateDictConfig,
    FullyShardedDataParallel as FSDP,
    StateDictType,
)


def save(trainer, model, path):
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        trainer.write(model, path)
