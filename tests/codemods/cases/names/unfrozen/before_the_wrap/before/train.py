import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision

BF16 = MixedPrecision(param_dtype=torch.bfloat16)


class Pair(nn.Module):
    def __init__(self, encoder, head):
        super().__init__()
        self.encoder, self.head = encoder, head
        self.head.requires_grad_(True)

    def shard(self):
        self.encoder = FSDP(self.encoder, mixed_precision=BF16)
        self.head = FSDP(self.head, mixed_precision=BF16)

    def forward(self, x):
        return self.head(self.encoder(x))


def build(encoder, head):
    pair = Pair(encoder, head)
    pair.requires_grad_(False)
    pair.encoder.requires_grad_(True)
    return pair


def train(batches):
    pair = build(nn.Linear(4, 4), nn.Linear(4, 4))
    pair.shard()
    for batch in batches:
        pair(batch).sum().backward()
