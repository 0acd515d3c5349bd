from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import CustomPolicy


class EveryOther:
    def __init__(self):
        self.count = 0

    def __call__(self, module) -> bool:
        self.count += isinstance(module, nn.Linear)
        return isinstance(module, nn.Linear) and self.count % 2 == 0


def shard(model):
    # TODO(fsdp-migrate FM103): loop over the submodules by hand: fully_shard(unit, ...)
    #   with each unit's own arguments
    return FSDP(model, auto_wrap_policy=CustomPolicy(EveryOther()), use_orig_params=True)
