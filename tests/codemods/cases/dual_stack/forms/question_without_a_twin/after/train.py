import torch
import torch.nn as nn
from torch.distributed.fsdp import FSDPModule, fully_shard


def version(model):
    if isinstance(model, FSDPModule):
        return 2
    return 0


def shard(model, strategy):
    if strategy in ("fsdp", "fsdp2"):
        return fully_shard(model)
    raise ValueError(strategy)


def wrapped(model, strategy):
    model = shard(model, strategy)
    n = 0
    for m in model.modules():
        if isinstance(m, FSDPModule):
            n += 1
    return n, sum(isinstance(m, FSDPModule) for m in model.modules()), [
        m for m in model.modules() if isinstance(m, FSDPModule)
    ]


def first(model):
    if isinstance(model, FSDPModule) and model.training:
        return next(model.parameters())
    return None


class Rollout:
    def __init__(self, model: nn.Module):
        # TODO(fsdp-migrate FM121): remove what is FSDP1's by hand, so that whoever
        #   chose it gets FSDP2 or is told: it insists on FSDP1
        if version(model) == 1 and torch.distributed.get_world_size() == 1:
            pass
        elif version(model) == 1:
            pass
        else:
            raise NotImplementedError(f"unsupported: {version(model)}")
        self.model = model

    def weights(self):
        return self.model.state_dict()
