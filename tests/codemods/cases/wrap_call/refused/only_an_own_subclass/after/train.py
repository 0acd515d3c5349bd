import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision


# TODO(fsdp-migrate FM106): make it a function that calls fully_shard, and what it added
#   methods of the model
class Wrapper(FSDP):
    def extra(self) -> int:
        return 1


def wrapped(model: torch.nn.Module) -> Wrapper:
    # TODO(fsdp-migrate FM516): rewrite this by hand for `fully_shard`
    return Wrapper(model, mixed_precision=MixedPrecision(param_dtype=torch.bfloat16))
