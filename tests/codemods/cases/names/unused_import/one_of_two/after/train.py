import torch
from torch.distributed.fsdp import fully_shard

try:
    from torch.distributed.fsdp import MixedPrecisionPolicy as Policy
except ImportError:
    from fsdp2_sharding import MixedPrecision as Policy

if hasattr(torch.amp, "GradScaler"):
    from torch.amp import GradScaler as Scaler
else:
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler as Scaler


def wrap(model, version):
    """Which of the two wraps is not known."""
    if version == 2:
        from torch.distributed.fsdp import fully_shard as wrapper
    else:
        # TODO(fsdp-migrate FM516): import one of them alone where no FSDP1 model is
        #   made any more, and rewrite again
        from torch.distributed.fsdp import FullyShardedDataParallel as wrapper
    return wrapper(model), Scaler()


def shard(model, version):
    """The value is of the one class or of the other."""
    from fsdp2_sharding import shard_model

    if version == 2:
        from torch.distributed.fsdp import MixedPrecisionPolicy as Precision
    else:
        from fsdp2_sharding import MixedPrecision as Precision
    precision = Precision(param_dtype=torch.bfloat16)
    if version == 2:
        return fully_shard(model, mp_policy=precision)
    return shard_model(model, mixed_precision=precision)


def precise(dtype):
    return Policy(param_dtype=dtype)
