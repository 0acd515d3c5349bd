import torch

from fsdp2_sharding import MixedPrecision, shard_model
from model import Model

# TODO(fsdp-migrate FM203): remove it: the optimizer gets more exact gradients, which
#   take more memory
POLICIES = {
    "exact": MixedPrecision(torch.bfloat16),
    "cheap": MixedPrecision(
        param_dtype=torch.bfloat16,
        keep_low_precision_grads=True,
    ),
}


def wrap(name):
    policy = POLICIES[name]
    policy.reduce_dtype = torch.float32
    return shard_model(Model(), mixed_precision=policy)
