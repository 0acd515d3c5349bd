import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision


class Wrapper(FSDP):
    def extra(self) -> int:
        return 1


def wrapped(model: torch.nn.Module) -> Wrapper:
    return Wrapper(model, mixed_precision=MixedPrecision(param_dtype=torch.bfloat16))
