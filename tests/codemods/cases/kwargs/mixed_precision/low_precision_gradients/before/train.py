import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision

from model import Model

POLICIES = {
    "exact": MixedPrecision(torch.bfloat16, keep_low_precision_grads=False),
    "cheap": MixedPrecision(
        param_dtype=torch.bfloat16,
        keep_low_precision_grads=True,
    ),
}


def wrap(name):
    policy = POLICIES[name]
    policy.reduce_dtype = torch.float32
    return FSDP(Model(), mixed_precision=policy)
