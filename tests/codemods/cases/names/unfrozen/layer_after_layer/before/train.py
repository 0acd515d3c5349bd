import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision


def train(model, batches):
    model.requires_grad_(False)
    model.head.requires_grad_(True)
    model = FSDP(model, mixed_precision=MixedPrecision(param_dtype=torch.bfloat16))
    for step, batch in enumerate(batches):
        if step == 100:
            model.blocks[-1].requires_grad_()
        if step == 200:
            model.head.requires_grad_(False)
        model(batch).sum().backward()
