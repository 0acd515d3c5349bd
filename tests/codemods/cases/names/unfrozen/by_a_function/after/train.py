import copy

import torch
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


def requires_grad(model, flag=True):
    for p in model.parameters():
        p.requires_grad = flag


def train(model, average, batches):
    precision = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16
    )
    fully_shard(model, mp_policy=precision)
    precision = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16
    )
    fully_shard(average, mp_policy=precision)
    requires_grad(average, False)
    for batch in batches:
        model(batch).sum().backward()
