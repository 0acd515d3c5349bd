import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

from adapters import merged


def test_adapters():
    model = FSDP(torch.nn.Linear(2, 2))
    assert merged(model, torch.ones(2)) is not None
