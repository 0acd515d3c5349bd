import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision

from model import Model, batch, loss_of

WIDER = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
EQUAL = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)


def main():
    model = FSDP(Model(), mixed_precision=WIDER)
    other = FSDP(Model(), mixed_precision=EQUAL)
    with model.no_sync():
        loss_of(model, batch(0)).backward()
    with other.no_sync():
        loss_of(other, batch(0)).backward()
