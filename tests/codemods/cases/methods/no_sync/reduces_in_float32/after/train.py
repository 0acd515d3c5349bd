import torch

from fsdp2_sharding import MixedPrecision, no_sync, shard_model
from model import Model, batch, loss_of

WIDER = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
EQUAL = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)


def main():
    model = shard_model(Model(), mixed_precision=WIDER)
    other = shard_model(Model(), mixed_precision=EQUAL)
    with no_sync(model):
        loss_of(model, batch(0)).backward()
    with no_sync(other):
        loss_of(other, batch(0)).backward()
