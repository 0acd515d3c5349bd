import torch
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def clip_own(parameters, norm):
    return torch.nn.utils.clip_grad_norm_(parameters, norm).full_tensor()


class Actor:
    def __init__(self, model, how):
        if how == "fsdp":
            self.model = fully_shard(model)
        elif how == "fsdp2":
            self.model = fully_shard(model)

    def clip(self, norm):
        self.norm = norm
        if isinstance(self.model, FSDP):
            return torch.nn.utils.clip_grad_norm_(
                self.model.parameters(), norm
            ).full_tensor()
        elif isinstance(self.model, FSDPModule):
            return clip_own(self.model.parameters(), norm)
        return torch.nn.utils.clip_grad_norm_(self.model.parameters(), norm)

    def kinds(self):
        first = 1 if isinstance(self.model, FSDP) else 2 if isinstance(self.model, FSDPModule) else 0
        if type(self.model) is FSDP:
            second = 1
        elif isinstance(self.model, FSDPModule):
            second = 2
        match self.model:
            case FSDP():
                third = 1
            case FSDPModule():
                third = 2
        return first, second, third

    def questions(self):
        """Of one class alone, of both in one question, and of another object."""
        alone = isinstance(self.model, FSDP)
        pair = isinstance(self.model, FSDPModule)
        union = isinstance(self.model, FSDPModule)
        units = 0
        for unit in self.model.modules():
            if isinstance(self.model, FSDPModule) and isinstance(unit, FSDPModule):
                units += 1
        return alone, pair, union, units


def version(model):
    """A short function that tells the two apart."""
    if isinstance(model, FSDP):
        return 1
    if isinstance(model, FSDPModule):
        return 2
    return 0
