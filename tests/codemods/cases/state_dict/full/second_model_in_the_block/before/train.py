import torch
from torch.distributed.fsdp import (
    FullStateDictConfig,
    StateDictType,
)
from torch.distributed.fsdp import (
    FullyShardedDataParallel as FSDP,
)


def save(model, teacher, path):
    model, teacher = FSDP(model), FSDP(teacher)
    config = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, config):
        torch.save({"model": model.state_dict(), "teacher": teacher.state_dict()}, path)
