import torch

from fsdp2_sharding import shard_model


class Settings:
    def __init__(self, version, dtype):
        self.version = version
        self.precision = precision_of(version, dtype)


def precision_of(version, dtype):
    if version == 2:
        from torch.distributed.fsdp import MixedPrecisionPolicy as Precision
    else:
        from fsdp2_sharding import MixedPrecision as Precision
    extra = "output_dtype" if version == 2 else "buffer_dtype"
    return Precision(param_dtype=dtype, reduce_dtype=dtype, **{extra: dtype})


def shard(model, settings):
    return shard_model(model, mixed_precision=settings.precision)


def main(model):
    model = shard(model, Settings(1, torch.bfloat16))
    return torch.optim.AdamW(model.parameters())
