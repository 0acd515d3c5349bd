import copy

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision


def requires_grad(model, flag=True):
    for p in model.parameters():
        p.requires_grad = flag


def train(model, average, batches):
    model = FSDP(model, mixed_precision=MixedPrecision(param_dtype=torch.bfloat16))
    average = FSDP(average, mixed_precision=MixedPrecision(param_dtype=torch.bfloat16))
    requires_grad(average, False)
    for batch in batches:
        model(batch).sum().backward()
