import torch
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


def train(model, batches):
    model.requires_grad_(False)
    model.head.requires_grad_(True)
    precision = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16
    )
    fully_shard(model, mp_policy=precision)
    for step, batch in enumerate(batches):
        if step == 100:
            model.blocks[-1].requires_grad_()
        if step == 200:
            model.head.requires_grad_(False)
        model(batch).sum().backward()
