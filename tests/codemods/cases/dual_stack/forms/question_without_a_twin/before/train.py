import torch
import torch.nn as nn
from torch.distributed.fsdp import FSDPModule, StateDictType, fully_shard
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def version(model):
    if isinstance(model, FSDP):
        return 1
    elif isinstance(model, FSDPModule):
        return 2
    return 0


def shard(model, strategy):
    if strategy == "fsdp":
        return FSDP(model)
    elif strategy == "fsdp2":
        return fully_shard(model)
    raise ValueError(strategy)


def wrapped(model, strategy):
    model = shard(model, strategy)
    n = 0
    for m in model.modules():
        if isinstance(m, FSDP):
            n += 1
    return n, sum(isinstance(m, FSDP) for m in model.modules()), [m for m in model.modules() if type(m) is FSDP]


def first(model):
    if isinstance(model, FSDP) and model.training:
        return next(model.parameters())
    return None


class Rollout:
    def __init__(self, model: nn.Module):
        if version(model) == 1 and torch.distributed.get_world_size() == 1:
            FSDP.set_state_dict_type(model, StateDictType.FULL_STATE_DICT)
        elif version(model) == 1:
            FSDP.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT)
        else:
            raise NotImplementedError(f"unsupported: {version(model)}")
        self.model = model

    def weights(self):
        return self.model.state_dict()
