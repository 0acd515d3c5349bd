import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class Settings:
    def __init__(self, version, dtype):
        self.version = version
        self.precision = precision_of(version, dtype)


def precision_of(version, dtype):
    if version == 1:
        from torch.distributed.fsdp import MixedPrecision
    elif version == 2:
        from torch.distributed.fsdp import MixedPrecisionPolicy as MixedPrecision
    extra = "output_dtype" if version == 2 else "buffer_dtype"
    # TODO(fsdp-migrate FM201): import FSDP1's under a name of its own, or FSDP2's
    #   alone, and rewrite again
    return MixedPrecision(param_dtype=dtype, reduce_dtype=dtype, **{extra: dtype})


def shard(model, settings):
    return FSDP(model, mixed_precision=settings.precision, use_orig_params=True)


def main(model):
    model = shard(model, Settings(1, torch.bfloat16))
    return torch.optim.AdamW(model.parameters())
